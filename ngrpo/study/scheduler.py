"""The scheduler: jobs side by side, on GPUs and on CPU cores beside them, until all are done or the time is up."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ngrpo.errors import RunError

_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

_GRACE_S = 8.0
"""Time that a command has between being asked to end and being killed; a training ends after its iteration."""

_LOG_TAIL = 15
"""Lines of a failed command's log that the error repeats."""


class OutOfTime(Exception):
    """A command was terminated at the deadline."""


@dataclass(frozen=True)
class Deadline:
    """The time by which everything has to be done.

    Attributes:
        at: on the clock of `time.monotonic`; None: no limit.
    """

    at: float | None = None

    @classmethod
    def after(cls, seconds: float | None, since: float | None = None) -> "Deadline":
        """Returns the deadline so many seconds after a time on that clock, or from now."""
        start = time.monotonic() if since is None else since
        return cls(None if seconds is None else start + seconds)

    def remaining_s(self) -> float:
        """Returns the seconds that remain."""
        return float("inf") if self.at is None else self.at - time.monotonic()


class CommandRunner:
    """Runs a job's commands one after the other in the current folder, with their output in a log.

    Args:
        deadline: commands that are still running then are terminated.
        device: the GPU they see, as CUDA_VISIBLE_DEVICES names it; empty: none; None: all of them.
    """

    def __init__(self, deadline: Deadline, device: str | None) -> None:
        self.deadline = deadline
        self.device = device

    def device_name(self) -> str:
        """Returns what its commands compute on, in words."""
        on_gpu = self.device != "" and torch.cuda.is_available()
        return torch.cuda.get_device_name() if on_gpu else "cpu"

    def run(self, command: Sequence[str], log: Path) -> float:
        """Runs a command and returns the seconds it took.

        Raises:
            RunError: it failed; the message ends with the last lines of its log.
            OutOfTime: the deadline passed.
        """
        environment = {**os.environ, **_ENVIRONMENT}
        if self.device is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self.device
        log.parent.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        with log.open("a") as file:
            process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
            try:
                status = process.wait(None if self.deadline.at is None else max(0.0, self.deadline.remaining_s()))
            except BaseException as error:
                _end(process)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise OutOfTime from None
                raise
        if status:
            lines = log.read_text(errors="replace").splitlines()[-_LOG_TAIL:]
            raise RunError(f"{' '.join(command)} failed with {status}:\n" + "\n".join(lines))
        return time.monotonic() - start


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Job:
    """A unit of work.

    Attributes:
        name: shown.
        run: does it, with the runner of the thread that it is scheduled on.
        kind: jobs of one kind take about as long as one another.
    """

    name: str
    run: Callable[[CommandRunner], None]
    kind: str = ""


def visible_devices() -> list[str]:
    """Returns the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name]
    return [str(number) for number in range(torch.cuda.device_count())]


def run_jobs(
    jobs: Sequence[Job],
    parallel: int,
    deadline: Deadline,
    expected_s: float = 0.0,
    say: Callable[[str], None] = print,
    on_cpu: int = 0,
) -> list[str]:
    """Runs jobs in their order, ``parallel`` of them at a time, spread over the visible GPUs.

    A job is not started, but passed over, if the longest one of its kind so far would not fit into what is left of the
    time; before one of its kind has finished, the longest of all. Jobs on GPUs and on the CPU are told apart. A failure
    stops nothing but its own job.

    Args:
        jobs: in the order in which they start.
        parallel: how many run at a time.
        deadline: no job starts that would not end by then.
        expected_s: the expected duration of a job, until one has finished.
        say: gets a line when a job starts and ends.
        on_cpu: further ones that run at a time and see no GPU.

    Returns:
        The names of jobs that were not done for lack of time.

    Raises:
        RunError: jobs failed; after the others are done.
    """
    scheduler = _Scheduler(list(jobs), deadline, expected_s, say)
    devices = visible_devices()
    named = [devices[i % len(devices)] if devices else None for i in range(parallel)]
    runners = [CommandRunner(deadline, device) for device in [*named, *[""] * on_cpu]]
    threads = [threading.Thread(target=scheduler.run_until_empty, args=(runner,), daemon=True) for runner in runners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if scheduler.failures:
        raise RunError("\n\n".join(scheduler.failures))
    return [job.name for job in jobs if job.name not in scheduler.done]


class _Scheduler:
    """The queue that the threads of `run_jobs` share."""

    def __init__(self, jobs: list[Job], deadline: Deadline, expected_s: float, say: Callable[[str], None]) -> None:
        self.waiting = jobs
        self.total = len(jobs)
        self.deadline = deadline
        self.expected_s = expected_s
        self.longest_s: dict[tuple[bool, str], float] = {}  # by whether it is on the CPU, and kind
        self.say = say
        self.done: set[str] = set()
        self.failures: list[str] = []
        self.lock = threading.Lock()

    def run_until_empty(self, runner: CommandRunner) -> None:
        """Runs jobs while there are some and there is time for them."""
        on_cpu = runner.device == ""
        while (job := self._next(on_cpu)) is not None:
            start = time.monotonic()
            try:
                job.run(runner)
            except OutOfTime:
                self.say(f"{job.name}: terminated, the time is up")
                return
            except Exception as error:  # the other jobs continue, and all failures are raised at the end
                with self.lock:
                    self.failures.append(f"{job.name}: {error}")
                self.say(f"{job.name}: failed")
                continue
            self._finish(job, time.monotonic() - start, on_cpu)

    def _next(self, on_cpu: bool) -> Job | None:
        with self.lock:
            remaining = self.deadline.remaining_s()
            fitting = (n for n, job in enumerate(self.waiting) if remaining > self._longest(on_cpu, job.kind))
            if (index := next(fitting, None)) is None:
                return None
            job = self.waiting.pop(index)
        self.say(f"{job.name}: started")
        return job

    def _longest(self, on_cpu: bool, kind: str) -> float:
        there = [seconds for (on, _), seconds in self.longest_s.items() if on == on_cpu]
        return self.longest_s.get((on_cpu, kind), max(there, default=self.expected_s))

    def _finish(self, job: Job, seconds: float, on_cpu: bool) -> None:
        with self.lock:
            self.longest_s[on_cpu, job.kind] = max(self.longest_s.get((on_cpu, job.kind), 0.0), seconds)
            self.done.add(job.name)
            count = len(self.done)
        self.say(f"{job.name}: done in {seconds:z.0f} s ({count} of {self.total})")
