"""The line that tells a run's progress."""

from io import StringIO

import pytest
from rich.console import Console

from ngrpo.report.run_progress import RunProgress
from ngrpo.training.run_length import RunLength

METRICS = ["reward 0.541", "pass@8 0.961", "loss 0.0132", "entropy 0.312", "1.2k tokens/s"]


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def shown(progress: RunProgress, width: int) -> str:
    console = Console(width=width, file=StringIO(), legacy_windows=False, _environ={})
    console.print(progress)
    (line,) = console.file.getvalue().splitlines()
    return line.rstrip()


def run(iterations: int = 40, tokens: int | None = None, clock: Clock | None = None) -> RunProgress:
    return RunProgress(RunLength(iterations, tokens), clock or Clock())


@pytest.fixture
def halfway() -> RunProgress:
    """Twelve of forty iterations, 10 s each, begun 65 s after the process."""
    clock = Clock()
    progress = run(clock=clock)
    clock.now += 65
    progress.begin(0, 0)
    for done in range(1, 13):
        clock.now += 10
        progress.advance(done, 0, METRICS)
    return progress


@pytest.mark.parametrize("width", [28, 36, 40, 50, 60, 70, 80, 100, 120, 200])
def test_count_bar_and_times_stand_at_every_width(halfway: RunProgress, width: int) -> None:
    line = shown(halfway, width)
    assert len(line) <= width
    for part in ("12/40", "━", "─", "3:05", "4:40"):
        assert part in line


def test_metrics_give_way_first_and_whole_ones_only(halfway: RunProgress) -> None:
    assert shown(halfway, 80).endswith("3:05 elapsed, 4:40 to go  reward 0.541  pass@8 0.961")
    assert shown(halfway, 80).startswith("iteration 12/40 ━")
    assert shown(halfway, 160).endswith("4:40 to go  " + "  ".join(METRICS))
    assert "reward" not in shown(halfway, 60)
    assert "elapsed" not in shown(halfway, 28)


def test_the_longest_count_and_times_fit_forty_columns() -> None:
    clock = Clock()
    progress = run(20_000, clock=clock)
    progress.begin(0, 0)
    clock.now += 86_399
    progress.advance(10_000, 0, METRICS)
    line = shown(progress, 40)
    assert line.startswith("10000/20000 ")
    assert line.endswith("23:59:59 23:59:59")
    assert len(line) <= 40


def test_time_to_go_is_unknown_before_the_first_iteration_and_counts_down_after_it() -> None:
    clock = Clock()
    progress = run(4, clock=clock)
    assert progress.time_to_go == "-:--"
    clock.now += 500  # the engine starts, the untrained policy is evaluated
    progress.begin(0, 0)
    assert (progress.time_to_go, progress.pace) == ("-:--", "? s/iteration")
    clock.now += 20
    progress.advance(1, 0)
    assert (progress.time_to_go, progress.pace) == ("1:00", "20 s/iteration")
    clock.now += 15
    assert progress.time_to_go == "0:45"
    clock.now += 100
    assert progress.time_to_go == "0:00"
    progress.advance(4, 0)
    assert progress.time_to_go == "0:00"


def test_a_resumed_run_counts_its_own_time_and_what_is_left() -> None:
    clock = Clock()
    progress = run(40, clock=clock)
    progress.begin(30, 0)
    assert (progress.count, progress.time_to_go) == ("30/40", "-:--")
    clock.now += 10
    progress.advance(31, 0)
    assert (progress.count, progress.time_to_go) == ("31/40", "1:30")


def test_the_nearer_limit_is_shown() -> None:
    clock = Clock()
    progress = run(40, 5_000_000, clock)
    progress.begin(0, 0)
    clock.now += 60
    progress.advance(10, 100_000, METRICS)
    assert shown(progress, 80).startswith("iteration 10/40 ")
    progress.advance(12, 2_500_000, METRICS)
    assert shown(progress, 80).startswith("iteration 12, 2.5M/5M tokens ")
    assert progress.time_to_go == "1:00"
    assert progress.as_text().startswith("iteration 12/40  2.5M/5M tokens  reward 0.541  ")


def test_without_unicode_the_bar_is_ascii(halfway: RunProgress) -> None:
    console = Console(width=80, file=Latin())
    console.print(halfway)
    line = console.file.getvalue()
    assert line.isascii()
    assert {"#", "."} <= set(line)
    assert "12/40" in line


class Latin(StringIO):
    """A stream that has no bars."""

    encoding = "iso-8859-1"
