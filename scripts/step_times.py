"""What `bench_step` puts into a training: a reward without cost, and a callback that times iterations by phase."""

import hashlib
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from kernel_times import IterationKernels
from lightning import Callback, LightningModule, Trainer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ngrpo.distributed.collectives import gathered, gathered_everywhere
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.types.rollouts import Rollout
from ngrpo.types.scores import Score, Verdict

GIB = 2**30


class AlternateReward:
    """Right and wrong in turn, so that every group has a signal."""

    def __call__(self, responses: Sequence[str], references: Sequence[str]) -> list[Score]:
        """Returns a score a response."""
        return [Score(float(n % 2), bool(n % 2), None, Verdict.CORRECT if n % 2 else Verdict.WRONG)
                for n in range(len(responses))]  # fmt: skip

    def close(self) -> None:
        """Holds nothing."""


class StepTimes(Callback):
    """Writes the seconds and phases of each iteration, and the peaks of memory after the warm-ups.

    Seconds are those of the first process, and an iteration ends when every process is done; memory is that of the
    fullest card; tokens are those of all of them. The digest of an iteration's rollouts is the same for any number of
    processes that make the same tokens.

    Args:
        worker: made to continue past every stop token, so that all completions are equally long.
        path: file to write.
        warm_up: iterations that are not counted.
        record_after: iterations before the one whose kernels are recorded, which is not counted either; None for none.
    """

    def __init__(self, worker: RolloutWorker, path: str, warm_up: int, record_after: int | None = None) -> None:
        worker.sampling = replace(worker.sampling, stop_ids=())
        self.kernels = IterationKernels(record_after)
        worker.engine.generate = self.kernels.generation(worker.engine.generate)  # type: ignore[method-assign]
        worker.sync_weights = in_transfer(worker.sync_weights)  # type: ignore[method-assign]
        self.path = Path(path)
        self.warm_up = warm_up
        self.steps: list[dict[str, Any]] = []
        self._last = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the clock; the engine has started."""
        OPTIMIZER.watch()
        reset_peak()
        self._last = now()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Notes an iteration; the last callback's."""
        now()
        rollouts = batch.experience.rollouts
        own = sum(r.length for r in rollouts), sum(r.tokens for r in rollouts)
        generated, trained = (float(sum(column)) for column in zip(*gathered(own), strict=True))
        moment = now()
        phases = {n.removeprefix("time/"): float(v) for n, v in trainer.callback_metrics.items() if n[:5] == "time/"}
        phases["optimizer_s"] = OPTIMIZER.taken()
        step = {"step_s": moment - self._last, **phases, "generated_tokens": generated, "tokens": trained}
        if not self.kernels.recorded(batch_idx + 1):
            logged = {n: float(trainer.callback_metrics[n]) for n in LOGGED if n in trainer.callback_metrics}
            self.steps.append(step | logged | {DIGEST: digest(rollouts)})
        if batch_idx + 1 == self.warm_up:
            reset_peak()
        peaks = [max(column) for column in zip(*gathered_everywhere(USED.peaks()), strict=True)]
        more = dict(zip(Used.NAMES, peaks, strict=True)) | self.kernels.ended(batch_idx + 1)
        if trainer.is_global_zero:
            write(self.path, self.steps[self.warm_up :], more)
        self._last = now()


LOGGED = ("policy/loss", "policy/grad_norm", "rollout/age", "mismatch/kl")
"""Metrics that are kept beside the times."""
DIGEST = "rollouts"
"""Key of an iteration's digest of rollouts."""


def digest(rollouts: Sequence[Rollout]) -> str:
    """Returns 16 hexadecimal digits that name the tokens of all ranks' rollouts (a collective)."""
    own = [(r.key, hashlib.sha256(r.response_ids.numpy().tobytes()).hexdigest()) for r in rollouts]
    return hashlib.sha256(repr(sorted(row for rank in gathered(own) for row in rank)).encode()).hexdigest()[:16]


def now() -> float:
    """Returns the time at which everything that was launched is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


class OptimizerSeconds:
    """Keeps how long the optimisers of this process took in their own steps, without the passes before them."""

    def __init__(self) -> None:
        self._seconds = self._start = 0.0
        self._watched = False

    def watch(self) -> None:
        """Starts to listen to every optimiser; once."""
        if not self._watched:
            register_optimizer_step_pre_hook(self._begin)
            register_optimizer_step_post_hook(self._end)
        self._watched = True

    def taken(self) -> float:
        """Returns the seconds since it was asked last."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _begin(self, *_: Any) -> None:
        self._start = now()

    def _end(self, *_: Any) -> None:
        self._seconds += now() - self._start


OPTIMIZER = OptimizerSeconds()


class Used(threading.Thread):
    """Keeps the most memory in use on the card, read fifty times a second; during the weight transfer, separately.

    PyTorch's own peak counts what a sleeping vLLM has given back, and not what vLLM has in a process of its own.
    """

    NAMES = ("peak_gib", "used_gib", "transfer_gib")

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = self.in_transfer = 0
        self.transfers = False
        self.device = 0  # a thread's current one is the first, whatever the process's is

    def run(self) -> None:
        """Reads on until the process ends."""
        while True:
            free, total = torch.cuda.mem_get_info(self.device)
            if self.transfers:
                self.in_transfer = max(self.in_transfer, total - free)
            else:
                self.most = max(self.most, total - free)
            time.sleep(0.02)

    def peaks(self) -> tuple[float, float, float]:
        """Returns the peaks so far: of PyTorch's allocator here, and of the whole card in the two parts; in GiB."""
        allocated = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
        return allocated / GIB, self.most / GIB, self.in_transfer / GIB

    @contextmanager
    def transferring(self) -> Iterator[None]:
        """Counts what is used inside as the weight transfer's."""
        self.transfers = True
        try:
            yield
        finally:
            self.transfers = False


USED = Used()


def in_transfer(function: Callable[..., None]) -> Callable[..., None]:
    """Returns a function whose memory counts as the weight transfer's."""

    def run(*args: Any, **kwargs: Any) -> None:
        with USED.transferring():
            function(*args, **kwargs)

    return run


def reset_peak() -> None:
    """Forgets the peaks of the warm-ups."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        USED.most = USED.in_transfer = 0
        if not USED.is_alive():
            USED.device = torch.cuda.current_device()
            USED.start()


def write(path: Path, steps: list[dict[str, Any]], peaks: dict[str, float]) -> None:
    """Writes the medians of the steps and the peaks."""
    if not steps:
        return
    names = [name for name in steps[0] if name != DIGEST and all(name in step for step in steps)]
    medians = {name: statistics.median(step[name] for step in steps) for name in names}
    path.write_text(json.dumps({**medians, **peaks, "steps": steps}))
