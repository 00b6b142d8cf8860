"""The time of a decode step, wall and kernels, for numbers of rows and lengths of bursts."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernel_times import Kernel, busy_seconds, recorded_kernels, seconds_by_name
from rich.table import Table
from step_times import now

Generate = Callable[[int, int], object]
"""Makes so many responses (rows) of exactly so many tokens, from prompts whose keys and values are cached."""

_TOP = 12
"""Kernels that are named in a result."""


@dataclass(frozen=True)
class DecodeStep:
    """The time of one decode step.

    A call of N + 1 tokens less one of a single token, over N: what a call costs beside its steps is left out.

    Attributes:
        mode: which sampler ran.
        rows: responses at once.
        burst: decode steps a scheduler round of the engine; None for its own choice.
        wall_ms: median over the rounds.
        rounds_ms: of each round.
        kernel_ms: while at least one kernel ran, from a call that was recorded; None without a GPU.
        kernels: their number.
        top_ms: the longest ones by name.
    """

    mode: str
    rows: int
    burst: int | None
    wall_ms: float
    rounds_ms: list[float]
    kernel_ms: float | None
    kernels: float
    top_ms: dict[str, float]

    @property
    def idle_share(self) -> float:
        """The fraction of the wall time in which no kernel ran: the GPU waited for the host."""
        return max(0.0, 1 - (self.kernel_ms or 0.0) / self.wall_ms)


def measured_steps(
    modes: Mapping[str, Generate], rows: Sequence[int], burst: int | None, steps: int, rounds: int
) -> Iterator[list[DecodeStep]]:
    """Measures every mode of an engine; yields the results of each number of rows.

    Modes alternate from round to round, so that drift of the host falls on all of them.
    """
    for generate in modes.values():
        generate(max(rows), 2)
    for count in rows:
        walls: dict[str, list[float]] = {mode: [] for mode in modes}
        for number in range(rounds + 1):
            for mode, generate in modes.items():
                seconds = step_seconds(generate, count, steps)
                if number:
                    walls[mode].append(1e3 * seconds)
        yield [with_kernels(mode, modes[mode], count, burst, steps, walls[mode]) for mode in modes]


def step_seconds(generate: Generate, rows: int, steps: int) -> float:
    """Returns the wall time of a step."""
    start = now()
    generate(rows, 1)
    between = now()
    generate(rows, steps + 1)
    return ((now() - between) - (between - start)) / steps


def with_kernels(
    mode: str, generate: Generate, rows: int, burst: int | None, steps: int, walls: list[float]
) -> DecodeStep:
    """Returns the result of one case, whose kernels are recorded now."""
    one, many = kernels_of(generate, rows, 1), kernels_of(generate, rows, steps + 1)
    before, after = seconds_by_name(one), seconds_by_name(many)
    top = {name: 1e3 * (spent - before.get(name, 0)) / steps for name, spent in after.items()}
    longest = sorted(top.items(), key=lambda item: -item[1])[:_TOP]
    kernel_ms = 1e3 * (busy_seconds(many) - busy_seconds(one)) / steps if many else None
    launches = (len(many) - len(one)) / steps
    return DecodeStep(mode, rows, burst, statistics.median(walls), walls, kernel_ms, launches, dict(longest))


def kernels_of(generate: Generate, rows: int, tokens: int) -> list[Kernel]:
    """Returns the kernels of a call."""
    with recorded_kernels() as kernels:
        generate(rows, tokens)
    return kernels


def step_table(steps: Sequence[DecodeStep], title: str) -> Table:
    """Returns the results as a table, what is not known left empty."""
    columns = ("wall, ms", "kernels, ms", "no kernel", "kernels", "tokens/s")
    table = Table("mode", "rows", "burst", *columns, title=title)
    for step in steps:
        busy = ("", "", "")
        if step.kernel_ms is not None:
            busy = (f"{step.kernel_ms:z.2f}", f"{step.idle_share:.0%}", f"{step.kernels:.0f}")
        burst = "" if step.burst is None else str(step.burst)
        wall, speed = f"{step.wall_ms:z.2f}", f"{1e3 * step.rows / step.wall_ms:.0f}"
        table.add_row(step.mode, str(step.rows), burst, wall, *busy, speed)
    return table


def step_markdown(steps: Sequence[DecodeStep]) -> str:
    """Returns wall and kernel time in ms as a table, a line for each mode and length of bursts."""
    rows = sorted({step.rows for step in steps})
    lines = [["", *(f"{count} rows" for count in rows)], ["---"] * (len(rows) + 1)]
    for mode, burst in dict.fromkeys((step.mode, step.burst) for step in steps):
        found = {step.rows: step for step in steps if (step.mode, step.burst) == (mode, burst)}
        name = mode if burst is None else f"{mode}, burst {burst}"
        lines.append([name, *(_cell(found.get(count)) for count in rows)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(step: DecodeStep | None) -> str:
    if step is None:
        return ""
    kernels = "" if step.kernel_ms is None else f" / {step.kernel_ms:z.2f}"
    return f"{step.wall_ms:z.2f}{kernels}"
