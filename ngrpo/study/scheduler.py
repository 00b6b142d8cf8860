"""Runs jobs side by side, each on a GPU of its own or sharing one, until they are done or the time is up."""

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

_LAST_WORDS = 15
"""Lines of a failed command's log that are repeated."""


class OutOfTime(Exception):
    """A command was ended because the time is up."""


@dataclass(frozen=True)
class Slice:
    """The time there is.

    Attributes:
        ends: when it is up, of `time.monotonic`; None never.
    """

    ends: float | None = None

    @classmethod
    def of(cls, seconds: float | None) -> "Slice":
        """Starts now."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    def left(self) -> float:
        """Returns the seconds that are left."""
        return float("inf") if self.ends is None else self.ends - time.monotonic()


class Shell:
    """Runs a job's commands one after the other, with their output in a log.

    Args:
        root: the folder that commands are run in.
        slice_: commands that are running when it ends are ended.
        device: index of the GPU they see; None leaves it open.
    """

    def __init__(self, root: Path, slice_: Slice, device: str | None) -> None:
        self.root = root
        self.slice = slice_
        self.device = device

    def run(self, command: Sequence[str], log: Path) -> float:
        """Runs a command and returns the seconds it took.

        Raises:
            RunError: it failed; the message ends with its last words.
            OutOfTime: it was ended.
        """
        environment = {**os.environ, **_ENVIRONMENT}
        if self.device is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self.device
        log.parent.mkdir(parents=True, exist_ok=True)
        start = time.monotonic()
        with log.open("a") as file:
            process = subprocess.Popen(command, cwd=self.root, env=environment, stdout=file, stderr=subprocess.STDOUT)
            try:
                status = process.wait(None if self.slice.ends is None else max(0.0, self.slice.left()))
            except BaseException as error:
                process.terminate()
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise OutOfTime from None
                raise
        if status:
            words = log.read_text(errors="replace").splitlines()[-_LAST_WORDS:]
            raise RunError(f"{' '.join(command)} failed with {status}:\n" + "\n".join(words))
        return time.monotonic() - start


@dataclass(frozen=True)
class Job:
    """Something to do.

    Attributes:
        name: shown.
        work: does it.
    """

    name: str
    work: Callable[[Shell], None]


def visible_devices() -> list[str]:
    """Returns the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name]
    return [str(number) for number in range(torch.cuda.device_count())]


def run_jobs(
    jobs: Sequence[Job],
    at_once: int,
    slice_: Slice,
    root: Path,
    expected_s: float = 0.0,
    say: Callable[[str], None] = print,
) -> list[str]:
    """Runs jobs in their order, ``at_once`` of them at a time, spread over the visible GPUs.

    A job is not started if the longest one so far would not fit into what is left of the time. A failure stops nothing
    but its own job.

    Args:
        jobs: what to do.
        at_once: how many side by side.
        slice_: the time there is.
        root: the folder that commands are run in.
        expected_s: what a job is expected to take until one has been finished.
        say: gets a line when a job begins and ends.

    Returns:
        The names of jobs that were not done for lack of time.

    Raises:
        RunError: jobs failed; after the others are done.
    """
    crew = _Crew(list(jobs), slice_, expected_s, say)
    devices = visible_devices()
    shells = [Shell(root, slice_, devices[i % len(devices)] if devices else None) for i in range(at_once)]
    threads = [threading.Thread(target=crew.work, args=(shell,), daemon=True) for shell in shells]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if crew.failures:
        raise RunError("\n\n".join(crew.failures))
    return [job.name for job in jobs if job.name not in crew.done]


class _Crew:
    """What the threads of `run_jobs` share."""

    def __init__(self, jobs: list[Job], slice_: Slice, expected_s: float, say: Callable[[str], None]) -> None:
        self.waiting = jobs
        self.total = len(jobs)
        self.slice = slice_
        self.longest_s = expected_s
        self.say = say
        self.done: set[str] = set()
        self.failures: list[str] = []
        self.lock = threading.Lock()

    def work(self, shell: Shell) -> None:
        """Does jobs while there are some and there is time for them."""
        while (job := self._next()) is not None:
            start = time.monotonic()
            try:
                job.work(shell)
            except OutOfTime:
                self.say(f"{job.name}: ended, the time is up")
                return
            except Exception as error:  # the other jobs go on, and all failures are told at the end
                with self.lock:
                    self.failures.append(f"{job.name}: {error}")
                self.say(f"{job.name}: failed")
                continue
            self._finish(job, time.monotonic() - start)

    def _next(self) -> Job | None:
        with self.lock:
            if not self.waiting or self.slice.left() <= self.longest_s:
                return None
            job = self.waiting.pop(0)
        self.say(f"{job.name}: begun")
        return job

    def _finish(self, job: Job, seconds: float) -> None:
        with self.lock:
            self.longest_s = max(self.longest_s, seconds)
            self.done.add(job.name)
            count = len(self.done)
        self.say(f"{job.name}: done in {seconds:.0f} s ({count} of {self.total})")
