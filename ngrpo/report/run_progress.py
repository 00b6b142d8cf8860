"""The progress of a run as a line: count, bar, elapsed time, time to go, and metrics if they fit."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ngrpo.training.run_length import RunLength
from ngrpo.utils.numbers import clock as on_a_clock
from ngrpo.utils.numbers import pace, short

_LONGEST_BAR = 40
_FORMS = (
    (10, "iteration {count}", "{elapsed} elapsed, {left} to go"),
    (4, "{count}", "{elapsed} elapsed, {left} to go"),
    (4, "{count}", "{elapsed}, {left} to go"),
    (1, "{count}", "{elapsed} {left}"),
)
"""Shortest bar, what stands before it and what stands after it: the first of them that fits is taken."""

_RECENT = 50
"""Iterations over which the pace is averaged: evaluations between them count."""

_UNKNOWN = "-:--"


class RunProgress:
    """A line that rich renders, as wide as the terminal.

    At the widths of terminals, metrics give way first, then words, then the bar; count and times always stand. Elapsed
    is the time of this process. The time to go is that of what is left of the run at the pace of this process's last
    iterations, with the evaluations among them, so that a resumed run does not count what an earlier process did.

    Args:
        length: of the run.
        clock: seconds.
    """

    def __init__(self, length: RunLength, clock: Callable[[], float] = time.monotonic) -> None:
        self.length = length
        self._clock = clock
        self._start = clock()
        self._metrics: Sequence[str] = ()
        self._ticks: deque[tuple[float, int, float]] = deque(maxlen=_RECENT + 1)
        self.iterations_done = 0
        self.generated_tokens = 0

    def begin(self, iterations_done: int, generated_tokens: int) -> None:
        """Says that the first iteration of this process begins, after as many of earlier ones."""
        self._ticks.clear()
        self.advance(iterations_done, generated_tokens)

    def advance(self, iterations_done: int, generated_tokens: int, metrics: Sequence[str] = ()) -> None:
        """Says that an iteration is finished; ``metrics`` are shown in this order, as many as there is room for."""
        self.iterations_done, self.generated_tokens = iterations_done, generated_tokens
        self._metrics = metrics
        self._ticks.append((self._clock(), iterations_done, self.share))

    @property
    def share(self) -> float:
        """How much of the run is done, at most 1."""
        return min(1.0, self.length.share(self.iterations_done, self.generated_tokens))

    @property
    def pace(self) -> str:
        """Seconds per iteration, in words."""
        (began, first, _), (ended, last, _) = self._ends()
        return f"{pace((ended - began) / (last - first))}/iteration" if last > first else "? s/iteration"

    @property
    def time_to_go(self) -> str:
        """On a clock; unknown before this process has finished an iteration."""
        (began, _, before), (ended, _, now) = self._ends()
        if now >= 1.0:
            return on_a_clock(0)
        if now <= before:
            return _UNKNOWN
        left = (1.0 - now) * (ended - began) / (now - before)
        return on_a_clock(max(0.0, left - (self._clock() - ended)))

    @property
    def count(self) -> str:
        """Iterations of iterations, or tokens of tokens where their limit is nearer."""
        if self.by_tokens:
            return f"{self.iterations_done}, {self.tokens}"
        return f"{self.iterations_done}/{self.length.iterations}"

    @property
    def by_tokens(self) -> bool:
        """Whether the limit of generated tokens is nearer than that of iterations."""
        return self.length.token_share(self.generated_tokens) > self.iterations_done / self.length.iterations

    @property
    def tokens(self) -> str:
        """Generated tokens of those of the limit."""
        return f"{short(self.generated_tokens)}/{short(self.length.max_generated_tokens or 0)} tokens"

    def as_text(self) -> str:
        """Returns the line of a log, with all metrics and the pace in place of a bar."""
        limit = [self.tokens] if self.length.max_generated_tokens else []
        count = f"iteration {self.iterations_done}/{self.length.iterations}"
        return "  ".join([count, *limit, *self._metrics, self.pace, f"{self.time_to_go} to go"])

    def _ends(self) -> tuple[tuple[float, int, float], tuple[float, int, float]]:
        nothing = (self._start, 0, 0.0)
        return (self._ticks[0], self._ticks[-1]) if self._ticks else (nothing, nothing)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the line."""
        width = options.max_width
        elapsed = on_a_clock(self._clock() - self._start)
        shown = {"count": self.count, "elapsed": elapsed, "left": self.time_to_go}
        least, before, after = _fitting(shown, width)
        spare = width - len(before) - len(after) - 2 - least
        metrics = _first(self._metrics, spare)
        bar = max(1, min(_LONGEST_BAR, least + spare - len(metrics)))
        line = Text.assemble(f"{before} ", _bar(self.share, bar, options.ascii_only), f" {after}{metrics}")
        line.no_wrap, line.overflow = True, "crop"
        yield line


def _fitting(shown: Mapping[str, str], width: int) -> tuple[int, str, str]:
    forms = [(least, before.format(**shown), after.format(**shown)) for least, before, after in _FORMS]
    return next((form for form in forms if form[0] + len(form[1]) + len(form[2]) + 2 <= width), forms[-1])


def _first(metrics: Sequence[str], width: int) -> str:
    """Returns as many whole metrics as fit, each after a gap."""
    line = ""
    for metric in metrics:
        longer = f"{line}  {metric}"
        if len(longer) > width:
            break
        line = longer
    return line


def _bar(share: float, width: int, ascii_only: bool) -> Text:
    """Returns a bar whose two parts differ without colour too."""
    done = int(share * width)
    full, empty = ("#", ".") if ascii_only else ("\u2501", "\u2500")
    return Text.assemble((full * done, "bar.complete"), (empty * (width - done), "bar.back"))
