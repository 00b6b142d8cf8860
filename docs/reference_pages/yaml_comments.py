"""The comments of conf/'s files."""

import re
from pathlib import Path

_KEY = re.compile(r"^(?P<indent> *)(?P<key>[\w.-]+):(?:\s+(?P<value>[^#]*?))?(?:\s+#\s*(?P<beside>.*))?$")


def heading(path: Path) -> str:
    """Returns the comment that a file begins with, packages (``@package``) left out, on one line."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("# @package")]
    first = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return " ".join(line.lstrip("# ") for line in lines[:first])


def of_keys(path: Path) -> dict[str, str]:
    """Returns the comment above or beside each key, by dotted path; a file's heading belongs to no key."""
    lines = path.read_text().splitlines()
    start = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    found: dict[str, str] = {}
    above: list[str] = []
    parents: list[tuple[int, str]] = []
    for line in lines[start:]:
        if line.strip().startswith("#"):
            above.append(line.strip().lstrip("# "))
            continue
        if match := _KEY.match(line):
            indent = len(match["indent"])
            parents = [parent for parent in parents if parent[0] < indent]
            parents.append((indent, match["key"]))
            if comment := " ".join([*above, match["beside"] or ""]).strip():
                found[".".join(key for _, key in parents)] = comment
        above = []
    return found
