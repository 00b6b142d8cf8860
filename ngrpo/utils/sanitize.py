"""Text that a model wrote, made harmless for where it is shown."""

import html
import re
import unicodedata

_KEPT = "\n\t\u200c\u200d"
"""Controls that are part of ordinary text: line ends, tabs, and the joiners of scripts and emoji."""

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|])")


def visible(text: str) -> str:
    r"""Returns ``text`` with every control character replaced by something that can be seen.

    An escape sequence could recolour or overwrite a terminal, a direction override turn the text of a page around.
    ASCII controls become their pictures (ESC is U+241B), others ``<U+202E>``; line ends and tabs stay.
    """
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character in _KEPT or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"<U+{code:04X}>"


def markdown_literal(text: str) -> str:
    """Returns Markdown that shows ``text`` as it is: no HTML, no images, no links, no emphasis.

    A line end stays one; paragraphs cannot be ended by the text.
    """
    lines = (_MARKDOWN.sub(r"\\\1", html.escape(line)) for line in visible(text).split("\n"))
    return "<br>".join(lines)
