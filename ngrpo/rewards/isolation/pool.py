"""The pool of processes that judge answers, each killed and replaced when an answer takes too long."""

import json
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import LifoQueue
from threading import Lock
from types import TracebackType
from typing import Self

from ngrpo.errors import RunError, SettingError
from ngrpo.rewards.isolation.child_process import ChildProcess, ProcessDied
from ngrpo.types.scores import Verdict
from ngrpo.utils.remote_error import RemoteError

Pair = tuple[str, str]

_START_LIMIT_S = 120.0  # importing SymPy and the grammar takes 2 s, on a cold network disk much longer
_MEMORY_MIB = 1024  # beyond the 200 or so that the libraries take
_REMEMBERED = 65_536
_RIGHT: Pair = (r"\frac{x}{2}+\sqrt{3}", r"\sqrt{3}+\frac{x}{2}")
"""Equal for the grammar and SymPy alone, whose exceptions make an answer a wrong one: all would be, silently."""
_LONGEST_REMEMBERED = 200
"""Characters of a pair. Long answers seldom come twice, and so many of 2,000 characters would take 0.5 GB."""


class NotStarted(Exception):
    """An answer-checking process did not start; the message is a sentence without what to do."""


class _Worker:
    """One answer-checking process, started when needed; used by one thread at a time."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        # One thread each: the run's processes share the cores.
        self.child = ChildProcess("ngrpo.rewards.isolation.judge", {"OMP_NUM_THREADS": "1"})

    def judge(self, pair: Pair) -> Verdict:
        """Judge one pair; a process that dies on it is replaced and gets it once more."""
        for _ in range(2):
            if self.child.pid is None:
                self.start()
            try:
                return Verdict(self.child.call(json.dumps(pair).encode(), self.timeout_s).decode())
            except TimeoutError:
                return Verdict.TIMEOUT
            except RemoteError:  # `judge.judge` raises nothing but a MemoryError
                self.child.kill()
                return Verdict.CRASHED
            except ProcessDied:
                pass
        return Verdict.CRASHED

    def start(self) -> None:
        """Starts the process.

        Raises:
            NotStarted: it does not start.
        """
        try:
            self.child.start(json.dumps(_MEMORY_MIB).encode(), _START_LIMIT_S)
        except RemoteError as error:
            raise NotStarted(f"an answer-checking process did not start ({error})") from error
        except TimeoutError as error:
            raise NotStarted(f"an answer-checking process did not start within {_START_LIMIT_S:g} s") from error
        except ProcessDied as error:
            raise NotStarted("an answer-checking process did not start, see its messages above") from error


class VerifierPool:
    """Processes that judge answers, each killed and replaced when an answer takes too long.

    Processes start when they are needed, outlive no interpreter, and may be used from any thread.

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
        try:
            return self._judged(pairs)
        except NotStarted as error:
            raise RunError(f"{error}; fix that and resume with ckpt=latest.") from error

    def try_out(self) -> None:
        """Has a process, which stays for the answers to come, judge an answer that is right.

        Raises:
            SettingError: it does not start, or does not find so.
        """
        try:
            (verdict,) = self._judged([_RIGHT])
        except NotStarted as error:
            raise SettingError(f"{error}; fix that, or choose a reward of your own with reward=custom.") from error
        if verdict is Verdict.TIMEOUT:
            raise SettingError(
                f"reward.timeout_s={self._workers[0].timeout_s:g} is too short to check the simplest of answers; raise "
                "it to 5, say."
            )
        if verdict is not Verdict.CORRECT:
            raise SettingError(
                f"the answer checker finds {_RIGHT[1]} for {_RIGHT[0]} {verdict}; install latex2sympy2_extended and "
                "SymPy anew, as ngrpo[math] pins them."
            )

    def _judged(self, pairs: Sequence[Pair]) -> list[Verdict]:
        verdicts = self._recall(pairs)
        unknown = [pair for pair in dict.fromkeys(pairs) if pair not in verdicts]
        if unknown:
            with ThreadPoolExecutor(len(self._workers)) as threads:
                verdicts.update(zip(unknown, threads.map(self._judge_one, unknown), strict=True))
        return [verdicts[pair] for pair in pairs]

    def close(self) -> None:
        """End all processes; a later `judge` starts them again."""
        for worker in self._workers:
            worker.child.kill()

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
