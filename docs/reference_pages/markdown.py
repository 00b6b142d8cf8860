"""Tables, code and text in Markdown."""

import re
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table, a line a row; bars in cells are escaped and line breaks become spaces."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def code(text: str) -> str:
    """Returns text as inline code; the empty text stays empty."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}" if text else ""


def prose(text: str) -> str:
    """Returns a docstring's text with markup escaped, and names of this package as links."""
    parts = re.split(r"(``[^`]+``|`[^`]+`)", text)
    return "".join(linked(part.strip("`"), part) if i % 2 else _escaped(part) for i, part in enumerate(parts))


def _escaped(text: str) -> str:
    return re.sub(r"([*_\[\]])", r"\\\1", text.replace("<", "&lt;"))


def linked(name: str, otherwise: str | None = None) -> str:
    """Returns the last part of a dotted name with a link to its place in the API, where it has one.

    Args:
        name: dotted name.
        otherwise: what to return for a name of another package; None for the name as code.
    """
    if not re.fullmatch(r"ngrpo(\.\w+){2,}", name):
        return code(name) if otherwise is None else otherwise
    return f'<autoref optional identifier="{name}"><code>{name.rpartition(".")[2]}</code></autoref>'


def bash(lines: Iterable[str]) -> str:
    """Returns commands as a block."""
    return "```bash\n" + "\n".join(lines) + "\n```"
