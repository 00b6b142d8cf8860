"""The length of bursts: how many decode steps vLLM's workers make before its scheduler is asked again."""

from collections.abc import Sequence

_LONGER_BELOW = 1 / 16
_SHORTER_ABOVE = 1 / 4
_SHORTEST = 2
"""Single steps are no bursts, and say nothing of what a burst would waste: their length would never grow again."""

_FIRST = 4
"""Steps of a batch that has just begun: each burst costs about what one single step does."""

_YOUNG_SHARE = 5


def most_steps(made: Sequence[int]) -> int:
    """Returns the most steps of a burst that further requests may come to wait for: about what its rows have made.

    Many who ask at the same moment do not come in the same one, and would wait while the first few make 32 tokens.
    A few new rows beside many older ones change nothing. A power of two.

    Args:
        made: tokens that each row has made, or is making; at least one row.
    """
    settled = sorted(made)[len(made) // _YOUNG_SHARE]
    return max(_FIRST, 1 << max(settled, 1).bit_length() - 1)


class BurstLength:
    """Halves when many of a burst's tokens were in vain, since their rows had ended, and doubles when few were.

    A power of two, so that few lengths occur.

    Args:
        most: of decode steps; 1 for no bursts.
    """

    def __init__(self, most: int) -> None:
        self._most = self._now = most

    def steps(self, remaining: int) -> int:
        """Returns the length of the next burst, for rows of which the longest has so many tokens to make."""
        return max(1, min(self._now, remaining))

    def observe(self, made: int, computed: int) -> None:
        """Notes a burst: tokens that belong to a response, and tokens that were computed."""
        wasted = 1 - made / computed
        if wasted > _SHORTER_ABOVE:
            self._now = min(self._most, max(_SHORTEST, self._now // 2))
        elif wasted < _LONGER_BELOW:
            self._now = min(self._most, self._now * 2)
