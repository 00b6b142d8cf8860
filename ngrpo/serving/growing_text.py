"""The text of a response that grows: what no further token can change, up to a text that stops it."""

from collections.abc import Callable, Sequence

_REPLACEMENT = "\ufffd"
_MOST_HELD = 64
"""Tokens after which bytes that make no character are taken for such."""

Decode = Callable[[Sequence[int]], str]
"""Returns the text of token ids."""


class GrowingText:
    """Gives out the text of tokens as they come.

    Held back are the bytes of a character whose others may follow, and what may be the beginning of a stop text.

    Args:
        decode: see `Decode`.
        stops: texts that end the response, and do not belong to it.

    Attributes:
        ids: all tokens so far.
        given: the text that was given out.
        stopped: a stop text has come.
    """

    def __init__(self, decode: Decode, stops: Sequence[str] = ()) -> None:
        self._decode = decode
        self._stops = stops
        self.ids: list[int] = []
        self.given = ""
        self.stopped = False
        self._whole = ""
        self._start = self._clean = self._taken = 0

    def add(self, ids: Sequence[int]) -> str:
        """Takes the next tokens; returns the text that can be given out now."""
        self.ids += ids
        # Decoded with the tokens before: some tokenizers begin a text otherwise than they go on.
        before = len(self._decode(self.ids[self._start : self._clean]))
        new = self._decode(self.ids[self._start :])[before:]
        unfinished = new.endswith(_REPLACEMENT) and len(self.ids) - self._clean < _MOST_HELD
        if unfinished:
            new = new.rstrip(_REPLACEMENT)
        self._whole += new[self._taken :]
        if unfinished:
            self._taken = max(self._taken, len(new))
        else:
            self._start, self._clean, self._taken = self._clean, len(self.ids), 0
        return self._give(self._whole, final=False)

    def end(self, whole: str) -> str:
        """Takes the whole text, when the response has ended; returns the rest of it."""
        if not whole.startswith(self.given):  # decoded at once it may differ in a space
            whole = self._whole
        return self._give(whole, final=True)

    def _give(self, whole: str, final: bool) -> str:
        at = stop_at(whole, self._stops)
        if at is not None:
            self.stopped = True
            whole = whole[:at]
        elif not final:
            whole = whole[: len(whole) - _may_begin(whole, self._stops)]
        given, self.given = self.given, max(whole, self.given, key=len)
        return self.given[len(given) :]


def stop_at(text: str, stops: Sequence[str]) -> int | None:
    """Returns where the stop text begins that is complete first; None where there is none."""
    found = ((at + len(stop), at) for stop in stops if (at := text.find(stop)) >= 0)
    return min(found, default=(0, None))[1]


def tokens_up_to_stop(decode: Decode, ids: Sequence[int], stops: Sequence[str]) -> int:
    """Returns how many tokens there are up to the one that completes the first stop text; all where there is none."""
    low, high = 0, len(ids)
    if stop_at(decode(ids), stops) is None:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if stop_at(decode(ids[:middle]), stops) is not None else (middle, high)
    return high


def _may_begin(text: str, stops: Sequence[str]) -> int:
    """Returns how many characters at the end of a text may be the beginning of a stop text."""
    longest = max((len(stop) - 1 for stop in stops), default=0)
    for count in range(min(longest, len(text)), 0, -1):
        if any(stop.startswith(text[-count:]) for stop in stops):
            return count
    return 0
