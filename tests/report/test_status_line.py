"""What the live line says, and that nothing is observed without a terminal."""

from types import SimpleNamespace

import pytest
from rich.console import Console

from ngrpo.report.status_line import StatusLine, status_line


def shown(line: StatusLine) -> str:
    return line.__rich__().plain


def test_it_tells_finished_of_total_and_the_speed() -> None:
    now = [100.0]
    line = StatusLine(clock=lambda: now[0])
    report = line.generating(64)
    assert shown(line) == "generating 0/64"
    now[0] = 102.0
    report(16, 3000)
    assert shown(line) == "generating 16/64  1.5k tokens/s"
    line.scoring(64)
    line.prefix = "aime24: 3/30 problems  "
    assert shown(line) == "aime24: 3/30 problems  scoring 64 answers"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_worker_is_observed_on_a_terminal_only(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(force_terminal=terminal, force_interactive=terminal, width=80)
    monkeypatch.setattr("ngrpo.report.status_line.get_console", lambda: console)
    worker = SimpleNamespace(observer=None)
    with console.capture() as captured, status_line(worker) as line:
        assert (worker.observer is line) is terminal
        line.text = "something"
    assert worker.observer is None
    assert bool(captured.get()) is terminal
