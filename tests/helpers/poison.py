"""Faults from outside the package, for the tests: what spoils a reward, a gradient, a worker or a strategy."""

import math
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from lightning import Callback

from ngrpo.exploration.base import Embed, RowContext, Step, StepContext
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.rewards.terms.base import Responses


class PoisonGradient(Callback):
    """Makes one number of the gradient NaN in chosen iterations, just before it is looked at."""

    def __init__(self, iterations: list[int]) -> None:
        self.iterations = iterations

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        self.now = batch.iteration in self.iterations
        self.parameter = next(pl_module.policy.parameters())  # not its copy, which mixed precision computes with

    def on_after_backward(self, trainer, pl_module) -> None:
        if self.now:
            self.parameter.grad.view(-1)[0] = math.nan


class LargeScale(Callback):
    """Begins a new run with loss scales so large that the first gradients overflow."""

    def __init__(self, value: float) -> None:
        self.value = value

    def on_fit_start(self, trainer, pl_module) -> None:
        if trainer.ckpt_path is None:
            for scale in pl_module.loss_scales.values():
                scale.value = self.value


class SpoiledReward:
    """A value that is no number for one response of the chosen calls."""

    def __init__(self, calls: list[int], value: float) -> None:
        self.calls = calls
        self.value = value
        self.made = 0

    def __call__(self, responses: Responses) -> torch.Tensor:
        values = torch.zeros(len(responses))
        if self.made in self.calls:
            values[1] = self.value
        self.made += 1
        return values


class Raising:
    """Raises on one problem."""

    def __init__(self, problem: int) -> None:
        self.problem = problem

    def __call__(self, responses: Responses) -> torch.Tensor:
        if any(problem.key == self.problem for problem in responses.problems):
            raise ValueError("no idea what to say of this")
        return torch.zeros(len(responses))


class Hanging:
    """Never comes back from the chosen calls."""

    def __init__(self, calls: list[int], marker: str) -> None:
        self.calls = calls
        self.marker = Path(marker)

    def __call__(self, responses: Responses) -> torch.Tensor:
        """The calls are counted in a file: the process does not live long enough to."""
        made = len(self.marker.read_text()) if self.marker.exists() else 0
        self.marker.write_text("." * (made + 1))
        while made in self.calls:
            pass
        return torch.zeros(len(responses))


class Slow(Callback):
    """Makes iterations long enough to be hit in the middle."""

    def __init__(self, seconds: float, marker: str) -> None:
        self.seconds = seconds
        self.marker = Path(marker)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        self.marker.touch()
        time.sleep(self.seconds)


class Stuck(Callback):
    """All processes but the first wait in an iteration, as they do in a collective without the first."""

    def __init__(self, iteration: int, marker: str) -> None:
        self.iteration = iteration
        self.marker = Path(marker)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        if trainer.global_rank and batch.iteration == self.iteration:
            self.marker.touch()
            time.sleep(600)


class ClockSetBack(Callback):
    """Sets this process's clock back by a day before an iteration."""

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx) -> None:
        if batch.iteration == self.iteration:
            seconds, nanoseconds = time.time, time.time_ns
            time.time = lambda: seconds() - 86400
            time.time_ns = lambda: nanoseconds() - 86400 * 10**9


class FailingStrategy(NeighborMixing):
    """Sound with two rows, with which it is tried; its author did not think of more."""

    def step(self, logits: torch.Tensor, ctx: StepContext) -> Step:
        if len(logits) > 2:
            raise KeyError("a typing error of the author")
        return super().step(logits, ctx)


class FailingInputs(NeighborMixing):
    """Sound with two rows, with which it is tried; its author did not think of more."""

    def inputs(self, embed: Embed, step: Step, ctx: RowContext, parameters: Mapping[str, torch.Tensor]) -> torch.Tensor:
        if len(step.token) > 2:
            raise KeyError("a typing error of the author")
        return super().inputs(embed, step, ctx, parameters)


class FailingTables(NeighborMixing):
    """Fails when its tables are prepared."""

    def prepare(self, embedding: torch.Tensor, vocabulary: Vocabulary) -> dict[str, torch.Tensor]:
        raise KeyError("a typing error of the author")


class FailingSchedule(NeighborMixing):
    """Fails when it is asked for its schedule."""

    def schedule(self, progress: torch.Tensor) -> dict[str, torch.Tensor]:
        raise KeyError("a typing error of the author")
