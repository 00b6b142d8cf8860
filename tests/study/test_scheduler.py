import sys
import threading
import time
from pathlib import Path

import pytest

from ngrpo.errors import RunError
from ngrpo.study.scheduler import CommandRunner, Deadline, Job, OutOfTime, run_jobs


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def fail(runner: CommandRunner, folder: Path) -> None:
    runner.run(python("raise SystemExit('no such model')"), folder / "log")


def wait(runner: CommandRunner, folder: Path) -> None:
    runner.run(python("import time; time.sleep(60)"), folder / "log")


def quiet(line: str) -> None:
    pass


def test_jobs_start_in_order_and_run_side_by_side(tmp_path: Path) -> None:
    both = threading.Barrier(2)
    order: list[str] = []

    def work(runner: CommandRunner, name: str) -> None:
        order.append(name)
        both.wait(10)

    jobs = [Job(name, lambda runner, name=name: work(runner, name)) for name in "abcd"]
    assert run_jobs(jobs, 2, Deadline(), say=quiet) == []
    assert set(order[:2]) == {"a", "b"}
    assert set(order[2:]) == {"c", "d"}


def test_devices_are_assigned_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    waiting = threading.Barrier(4)

    def work(runner: CommandRunner, name: str) -> None:
        waiting.wait(10)
        runner.run(python("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"), tmp_path / name)

    jobs = [Job(name, lambda runner, name=name: work(runner, name)) for name in "abcd"]
    run_jobs(jobs, 4, Deadline(), say=quiet)
    assert sorted((tmp_path / name).read_text().strip() for name in "abcd") == ["3", "3", "5", "5"]


def test_jobs_on_the_cpu_see_no_gpu_and_run_beside_those_that_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "a card")
    waiting = threading.Barrier(3)
    names: list[tuple[str, str]] = []

    def work(runner: CommandRunner, name: str) -> None:
        waiting.wait(10)
        runner.run(python("import os; print(repr(os.environ['CUDA_VISIBLE_DEVICES']))"), tmp_path / name)
        names.append(((tmp_path / name).read_text().strip(), runner.device_name()))

    jobs = [Job(name, lambda runner, name=name: work(runner, name)) for name in "abc"]
    assert run_jobs(jobs, 1, Deadline(), say=quiet, on_cpu=2) == []
    assert sorted(names) == [("''", "cpu"), ("''", "cpu"), ("'3'", "a card")]


class Clock:
    """A clock that jobs turn on, in place of waiting."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("ngrpo.study.scheduler.time", self)

    def monotonic(self) -> float:
        return self.now


def test_slow_jobs_on_the_cpu_keep_none_from_starting_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    clock, begun, ready, over = Clock(monkeypatch), threading.Event(), threading.Event(), threading.Event()
    done: list[bool] = []

    def work(runner: CommandRunner) -> None:
        if on_cpu := runner.device == "":
            begun.set()
            ready.wait(10)
        else:
            begun.wait(10)
            if len(done) == 7:
                ready.set()
                over.wait(10)
            clock.now += 0.2
        done.append(on_cpu)

    def say(line: str) -> None:
        if "done in 1 s" in line:
            over.set()

    jobs = [Job(str(number), work) for number in range(11)]
    assert run_jobs(jobs, 1, Deadline(2.6), say=say, on_cpu=1) == []
    assert [index for index, on_cpu in enumerate(done) if on_cpu] == [7]


def test_a_failure_stops_nothing_else_and_is_raised_with_the_end_of_its_log(tmp_path: Path) -> None:
    done: list[str] = []
    jobs = [
        Job("bad", lambda runner: fail(runner, tmp_path)),
        Job("good", lambda runner: done.append("good")),
    ]
    with pytest.raises(RunError, match="(?s)bad: .*failed with 1.*no such model"):
        run_jobs(jobs, 1, Deadline(), say=quiet)
    assert done == ["good"]


def test_no_job_starts_that_would_not_fit(tmp_path: Path) -> None:
    done: list[str] = []

    def work(runner: CommandRunner, name: str) -> None:
        time.sleep(0.6)
        done.append(name)

    jobs = [Job(name, lambda runner, name=name: work(runner, name)) for name in "abc"]
    assert run_jobs(jobs, 1, Deadline.after(1.0), say=quiet) == ["b", "c"]
    assert done == ["a"]
    assert run_jobs(jobs, 1, Deadline.after(1.0), expected_s=2.0, say=quiet) == ["a", "b", "c"]


def test_a_job_of_a_slow_kind_is_passed_over_where_one_of_a_fast_kind_still_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, done = Clock(monkeypatch), []

    def work(name: str) -> None:
        clock.now += 1.6 if "slow" in name else 0.2
        done.append(name)

    names = ["fast 1", "slow 1", "slow 2", "fast 2"]
    jobs = [Job(name, lambda _, name=name: work(name), kind=name.split()[0]) for name in names]
    assert run_jobs(jobs, 1, Deadline(3.0), say=quiet) == ["slow 2"]
    assert done == ["fast 1", "slow 1", "fast 2"]


def test_a_command_is_terminated_at_the_deadline(tmp_path: Path) -> None:
    start = time.monotonic()
    runner = CommandRunner(Deadline.after(0.5), None)
    with pytest.raises(OutOfTime):
        wait(runner, tmp_path)
    assert time.monotonic() - start < 10
    jobs = [Job("slow", lambda runner: wait(runner, tmp_path))]
    assert run_jobs(jobs, 1, Deadline.after(0.5), say=quiet) == ["slow"]


def test_a_command_that_does_not_end_when_asked_to_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ngrpo.study.scheduler._GRACE_S", 0.5)
    deaf = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: print('no', flush=True)); time.sleep(60)"
    start = time.monotonic()
    with pytest.raises(OutOfTime):
        CommandRunner(Deadline.after(4.0), None).run(python(f"{deaf}; time.sleep(60)"), tmp_path / "log")
    assert time.monotonic() - start < 20
    assert (tmp_path / "log").read_text() == "no\n"
