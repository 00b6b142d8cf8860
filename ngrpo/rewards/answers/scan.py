r"""A scanner of LaTeX text that respects its brackets.

Round and square brackets close each other, as in ``(0,1]``; braces, set braces, angles and environments count too.
"""

import re
from collections.abc import Iterator

_TOKEN = re.compile(r"\\begin\{[^{}]*\}|\\end\{[^{}]*\}|\\[A-Za-z]+|\\.|[\s\S]")
_OPENING = {"(", "[", "{", r"\{", r"\langle", r"\lfloor", r"\lceil"}
_CLOSING = {")", "]", "}", r"\}", r"\rangle", r"\rfloor", r"\rceil"}


def depths(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield each token with its position and the number of brackets around it.

    A bracket counts as inside itself. A closing bracket without an opening one gives a negative depth.
    """
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        opens = token in _OPENING or token.startswith(r"\begin{")
        closes = token in _CLOSING or token.startswith(r"\end{")
        depth += opens
        yield match.start(), token, depth if depth > 0 or not closes else -1
        depth -= closes


def is_balanced(text: str) -> bool:
    """Whether every bracket is closed, and none before it is opened."""
    depth, last = 0, ""
    for _, last, depth in depths(text):  # noqa: B007
        if depth < 0:
            return False
    return depth == 0 or (depth == 1 and (last in _CLOSING or last.startswith(r"\end{")))


def depth_of(text: str) -> int:
    """The largest number of brackets around a token."""
    return max((depth for _, _, depth in depths(text)), default=0)


def split(text: str, separator: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """Split where ``separator`` matches outside all brackets.

    Returns:
        The parts, stripped, and the separators between them.
    """
    outside = {position for position, _, depth in depths(text) if depth == 0}
    parts, found, start = [], [], 0
    for match in separator.finditer(text):
        if match.start() in outside:
            parts.append(text[start : match.start()].strip())
            found.append(match[0].strip())
            start = match.end()
    return [*parts, text[start:].strip()], found


def enclosed(text: str, opening: str, closing: str) -> str | None:
    """Return what the two brackets enclose if they are one pair around the whole text, else None."""
    if not (text.startswith(opening) and text.endswith(closing)) or len(text) < len(opening) + len(closing):
        return None
    end = len(text) - len(closing)
    if any(depth < 1 for position, _, depth in depths(text) if position <= end):
        return None
    # "(a)(b)" returns to depth 1 only at its brackets: the second one opens at depth 1 again.
    first_close = next(p for p, token, depth in depths(text) if depth == 1 and token in _CLOSING)
    return text[len(opening) : end].strip() if first_close == end else None


def group_end(text: str, start: int) -> int:
    """The position after the bracket that closes the one at ``start``; the end of the text if none does."""
    for position, token, depth in depths(text[start:]):
        if depth == 1 and token in _CLOSING:
            return start + position + len(token)
    return len(text)
