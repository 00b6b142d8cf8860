"""The text of each token."""

from collections.abc import Sequence
from typing import Any

_REPLACEMENT = "\ufffd"
_LONGEST_CHARACTER = 4
"""Bytes of the longest UTF-8 character, so tokens that one character may be spread over."""


def token_texts(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Returns the text of each token.

    Where a character is spread over several tokens, it stands at the last of them and the others are empty.

    Args:
        tokenizer: a transformers tokenizer.
        ids: T token ids.

    Returns:
        T texts.
    """
    out: list[str] = []
    waiting: list[int] = []
    for number in ids:
        waiting.append(number)
        text = tokenizer.decode(waiting)
        unfinished = text.endswith(_REPLACEMENT) and len(waiting) < _LONGEST_CHARACTER
        out.append("" if unfinished else text)
        if not unfinished:
            waiting = []
    if waiting and out:
        out[-1] = tokenizer.decode(waiting)
    return out
