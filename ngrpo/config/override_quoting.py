"""Quoting of texts for Hydra's grammar of overrides."""

import re

_PLAIN = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)  # Hydra knows no other letters outside quotes
_WORDS = ("null", "true", "false", "nan", "inf")
"""Texts that would be read as other values."""


def quoted(text: str) -> str:
    """Quotes a text where it needs it; backslashes stand for themselves but before a quote."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    inside = re.sub(r"(\\*)'", r"\1\1\\'", text)
    return "'" + re.sub(r"(\\+)$", r"\1\1", inside) + "'"
