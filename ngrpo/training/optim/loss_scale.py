"""The dynamic scale of a loss whose gradients are computed in float16."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger(__name__)

Backward = Callable[[Tensor], None]

GROWTH_INTERVAL = 400
"""Steps without an overflow after which the scale doubles: a run of reinforcement learning is a few hundred long."""


class LossScale:
    """No scale, for float32 and bfloat16: their smallest numbers are below every gradient that matters."""

    def begin(self) -> None:
        """Starts a rollout batch."""

    def scaled(self, backward: Backward) -> Backward:
        """Returns the backward pass of the scaled loss."""
        return backward

    def unscale(self, parameters: Iterable[Tensor]) -> None:
        """Divides the gradients by the scale."""

    def overflowed(self, loss: Tensor, norm: Tensor) -> bool:
        """Says whether a step is to be skipped for the scale alone, and adapts the scale.

        Args:
            loss: of the whole minibatch, not scaled; the same on all ranks.
            norm: of the unscaled gradient; the same on all ranks.
        """
        return False

    def metrics(self) -> dict[str, float]:
        """Returns what is logged of the batch, by tag."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a checkpoint."""


class DynamicScale(LossScale):
    """A power of two that keeps the gradients of a backward pass within the range of float16, 6e-8 to 65504.

    The rule is that of ``torch.amp.GradScaler`` (Micikevicius et al., arXiv 1710.03740, section 3.2): half after a step
    whose gradient overflowed, twice after `GROWTH_INTERVAL` steps without. That class looks for an overflow gradient by
    gradient, on each device; here the norm tells it, which is one number for all ranks, and for all meshes of a
    sharded model: every rank skips the same steps. A power of two rounds nothing.

    A scale of 1 is none: a gradient that is not finite then, or a loss that is not, is a bad step (see
    `ngrpo.training.nonfinite_guard`) and leaves the scale as it is.

    Args:
        model: whose loss it is, policy or critic; for metrics and messages.
        value: at first.
        growth_interval: steps without an overflow before the scale doubles.
    """

    def __init__(self, model: str, value: float = 2.0**16, growth_interval: int = GROWTH_INTERVAL) -> None:
        self.model = model
        self.value = value
        self.growth_interval = growth_interval
        self._steps = 0
        self._skipped = 0

    def begin(self) -> None:
        """Counts the skipped steps anew."""
        self._skipped = 0

    def scaled(self, backward: Backward) -> Backward:
        """Returns the backward pass of the scaled loss."""
        return lambda loss: backward(loss * self.value)

    @torch.no_grad()
    def unscale(self, parameters: Iterable[Tensor]) -> None:
        """Divides the gradients, which are float32, by the scale."""
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(1 / self.value)

    def overflowed(self, loss: Tensor, norm: Tensor) -> bool:
        """Halves the scale and says so where a gradient overflowed, else counts the step."""
        if bool(norm.isfinite()):
            self._grow()
            return False
        if self.value <= 1 or not bool(loss.isfinite()):
            return False
        self._skipped += 1
        self._steps = 0
        self.value /= 2
        log.info("the %s's gradient overflowed: the step is left out, the loss scale %g now", self.model, self.value)
        return True

    def _grow(self) -> None:
        self._steps += 1
        if self._steps < self.growth_interval:
            return
        self._steps = 0
        if self.value * 2 <= torch.finfo(torch.float32).max:
            self.value *= 2

    def metrics(self) -> dict[str, float]:
        """Returns the scale after the batch, and how many of its steps were left out for it."""
        return {f"{self.model}/loss_scale": self.value, f"{self.model}/overflowed_steps": float(self._skipped)}

    def state_dict(self) -> dict[str, Any]:
        """Returns the scale, and the steps since it last changed."""
        return {"value": self.value, "steps": self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with both."""
        self.value, self._steps = state["value"], state["steps"]


def loss_scale(model: str, computed_in: torch.dtype) -> LossScale:
    """Returns the scale of a model's loss whose backward pass is made in a dtype."""
    return DynamicScale(model) if computed_in == torch.float16 else LossScale()
