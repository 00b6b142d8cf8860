"""Judging answers in processes that can be killed."""

import json
import os
import select
import subprocess
import sys
import time
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import LifoQueue
from threading import Lock
from types import TracebackType
from typing import Self

import ngrpo
from ngrpo.errors import RunError
from ngrpo.types.scores import Verdict

Pair = tuple[str, str]

_START_LIMIT_S = 120.0  # importing SymPy and the grammar takes 2 s, on a cold network disk much longer
_MEMORY_MIB = 1024  # beyond the 200 or so that the libraries take
_REMEMBERED = 65_536
_LONGEST_REMEMBERED = 200
"""Characters of a pair. Long answers seldom come twice, and so many of 2,000 characters would take 0.5 GB."""


class _Dead(Exception):
    """The process closed its output."""


class _Worker:
    """One answer-checking process, started when needed; used by one thread at a time."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.process: subprocess.Popen[bytes] | None = None

    def judge(self, pair: Pair) -> Verdict:
        """Judge one pair; a process that dies on it is replaced and gets it once more."""
        for _ in range(2):
            process = self.process or self._start()
            try:
                verdict = self._ask(process, pair)
                if verdict is Verdict.CRASHED:
                    self.kill()
                return verdict
            except TimeoutError:
                self.kill()
                return Verdict.TIMEOUT
            except (_Dead, BrokenPipeError):
                self.kill()
        return Verdict.CRASHED

    def kill(self) -> None:
        """End the process, if there is one, and wait until it is gone."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _start(self) -> subprocess.Popen[bytes]:
        path = [str(Path(ngrpo.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        # -P: the child must not import from the current directory, whatever lies there.
        self.process = process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ngrpo.rewards.isolation.judge", str(2 * self.timeout_s), str(_MEMORY_MIB)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            process_group=0,  # what is sent to the trainer's group is for the trainer
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"},
        )
        try:
            _read_line(process, _START_LIMIT_S)
        except (_Dead, TimeoutError) as error:
            self.kill()
            raise RunError(
                "an answer-checking process did not start; see its messages above, fix what they say and resume with "
                "ckpt=latest."
            ) from error
        return process

    def _ask(self, process: subprocess.Popen[bytes], pair: Pair) -> Verdict:
        reference, answer = pair
        request = json.dumps({"reference": reference, "answer": answer}) + "\n"
        assert process.stdin is not None
        process.stdin.write(request.encode())
        return Verdict(json.loads(_read_line(process, self.timeout_s))["verdict"])


def _read_line(process: subprocess.Popen[bytes], timeout_s: float) -> bytes:
    """Read up to the end of a line.

    Raises:
        TimeoutError: no whole line came in time.
        _Dead: the process ended first.
    """
    assert process.stdout is not None
    deadline = time.monotonic() + timeout_s
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    line = b""
    while not line.endswith(b"\n"):
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError
        if not (chunk := process.stdout.read(4096)):
            raise _Dead
        line += chunk
    return line


def _kill_all(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.kill()


class VerifierPool:
    """Processes that judge answers, each killed and replaced when an answer takes too long.

    Processes start at the first use, outlive no interpreter, and may be used from any thread.

    Args:
        workers: number of processes.
        timeout_s: wall-clock seconds allowed for one answer, from the moment a started process gets it.
    """

    def __init__(self, workers: int, timeout_s: float) -> None:
        self._workers = tuple(_Worker(timeout_s) for _ in range(workers))
        self._idle: LifoQueue[_Worker] = LifoQueue()  # last in, first out: a single answer starts one process
        for worker in self._workers:
            self._idle.put(worker)
        self._remembered: OrderedDict[Pair, Verdict] = OrderedDict()
        self._lock = Lock()
        weakref.finalize(self, _kill_all, self._workers)

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Judge pairs (reference, answer), each distinct pair once.

        Verdicts are remembered, except for timeouts and crashes, which a busy machine can cause.

        Args:
            pairs: references and answers as text, without boxes.

        Returns:
            One verdict a pair, in the given order.

        Raises:
            RunError: a process could not be started.
        """
        verdicts = self._recall(pairs)
        unknown = [pair for pair in dict.fromkeys(pairs) if pair not in verdicts]
        if unknown:
            with ThreadPoolExecutor(len(self._workers)) as threads:
                verdicts.update(zip(unknown, threads.map(self._judge_one, unknown), strict=True))
        return [verdicts[pair] for pair in pairs]

    def close(self) -> None:
        """End all processes; a later `judge` starts them again."""
        _kill_all(self._workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _recall(self, pairs: Sequence[Pair]) -> dict[Pair, Verdict]:
        with self._lock:
            known = {pair: self._remembered[pair] for pair in pairs if pair in self._remembered}
            for pair in known:
                self._remembered.move_to_end(pair)
        return known

    def _judge_one(self, pair: Pair) -> Verdict:
        worker = self._idle.get()
        try:
            verdict = worker.judge(pair)
        finally:
            self._idle.put(worker)
        if verdict not in (Verdict.TIMEOUT, Verdict.CRASHED):
            self._remember(pair, verdict)
        return verdict

    def _remember(self, pair: Pair, verdict: Verdict) -> None:
        if len(pair[0]) + len(pair[1]) > _LONGEST_REMEMBERED:
            return
        with self._lock:
            self._remembered[pair] = verdict
            if len(self._remembered) > _REMEMBERED:
                self._remembered.popitem(last=False)
