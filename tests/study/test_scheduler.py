import sys
import threading
import time
from pathlib import Path

import pytest

from ngrpo.errors import RunError
from ngrpo.study.scheduler import Job, OutOfTime, Shell, Slice, run_jobs


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def fail(shell: Shell, folder: Path) -> None:
    shell.run(python("raise SystemExit('no such model')"), folder / "log")


def wait(shell: Shell, folder: Path) -> None:
    shell.run(python("import time; time.sleep(60)"), folder / "log")


def quiet(line: str) -> None:
    pass


def test_jobs_start_in_order_and_run_side_by_side(tmp_path: Path) -> None:
    both = threading.Barrier(2)
    order: list[str] = []

    def work(shell: Shell, name: str) -> None:
        order.append(name)
        both.wait(10)

    jobs = [Job(name, lambda shell, name=name: work(shell, name)) for name in "abcd"]
    assert run_jobs(jobs, 2, Slice(), tmp_path, say=quiet) == []
    assert set(order[:2]) == {"a", "b"}
    assert set(order[2:]) == {"c", "d"}


def test_devices_are_dealt_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    waiting = threading.Barrier(4)

    def work(shell: Shell, name: str) -> None:
        waiting.wait(10)
        shell.run(python("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"), tmp_path / name)

    jobs = [Job(name, lambda shell, name=name: work(shell, name)) for name in "abcd"]
    run_jobs(jobs, 4, Slice(), tmp_path, say=quiet)
    assert sorted((tmp_path / name).read_text().strip() for name in "abcd") == ["3", "3", "5", "5"]


def test_a_failure_stops_nothing_else_and_is_told_with_its_last_words(tmp_path: Path) -> None:
    done: list[str] = []
    jobs = [
        Job("bad", lambda shell: fail(shell, tmp_path)),
        Job("good", lambda shell: done.append("good")),
    ]
    with pytest.raises(RunError, match="(?s)bad: .*failed with 1.*no such model"):
        run_jobs(jobs, 1, Slice(), tmp_path, say=quiet)
    assert done == ["good"]


def test_nothing_begins_that_would_not_fit(tmp_path: Path) -> None:
    done: list[str] = []

    def work(shell: Shell, name: str) -> None:
        time.sleep(0.6)
        done.append(name)

    jobs = [Job(name, lambda shell, name=name: work(shell, name)) for name in "abc"]
    assert run_jobs(jobs, 1, Slice.of(1.0), tmp_path, say=quiet) == ["b", "c"]
    assert done == ["a"]
    assert run_jobs(jobs, 1, Slice.of(1.0), tmp_path, expected_s=2.0, say=quiet) == ["a", "b", "c"]


def test_a_command_is_ended_when_the_time_is_up(tmp_path: Path) -> None:
    start = time.monotonic()
    shell = Shell(tmp_path, Slice.of(0.5), None)
    with pytest.raises(OutOfTime):
        wait(shell, tmp_path)
    assert time.monotonic() - start < 10
    jobs = [Job("slow", lambda shell: wait(shell, tmp_path))]
    assert run_jobs(jobs, 1, Slice.of(0.5), tmp_path, say=quiet) == ["slow"]
