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
    """Returns a docstring's text with what Markdown would take for markup escaped, outside code."""
    parts = re.split(r"(``[^`]+``|`[^`]+`)", text)
    return "".join(part if i % 2 else re.sub(r"([<*_\[\]|])", r"\\\1", part) for i, part in enumerate(parts))


def bash(lines: Iterable[str]) -> str:
    """Returns commands as a block."""
    return "```bash\n" + "\n".join(lines) + "\n```"
