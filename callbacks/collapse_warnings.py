"""Warnings, each once, of a training that collapses."""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lightning import Callback, LightningModule, Trainer

from ngrpo.types.problems import PromptBatch

log = logging.getLogger(__name__)


@dataclass
class Watch:
    """One sign of trouble.

    Attributes:
        tag: of the metric that shows it.
        bad: says whether the metric's means over the last ``window`` iterations are bad, oldest first.
        message: what is said, with the last mean as ``{value}``, and the usual remedy.
    """

    tag: str
    bad: Callable[[float, float], bool]
    message: str
    first: float | None = None
    recent: deque[float] = field(default_factory=deque)

    def add(self, value: float, window: int) -> float | None:
        """Takes a value; returns the mean of the last ``window`` when it is bad, compared with that of the first."""
        self.recent.append(value)
        if len(self.recent) < window:
            return None
        mean = sum(self.recent) / window
        self.recent.popleft()
        if self.first is None:
            self.first = mean
        return mean if self.bad(self.first, mean) else None


def _watches(entropy: float, mismatch: float) -> list[Watch]:
    return [
        Watch(
            "policy/entropy",
            lambda first, now: now < entropy * first,
            f"the policy's entropy has fallen below {entropy:g} of what it was (policy/entropy {{value:.3g}}): "
            "rollouts become alike; raise algo.entropy_coef or algo.clip.high, lower trainer.optimizer.lr, or explore"
            " more",
        ),
        Watch(
            "rollout/mismatch_mean",
            lambda first, now: now > mismatch and now > 2 * first,
            "the engine's log-probs drift from the trainer's (rollout/mismatch_mean {value:.3g}): updates become "
            "off-policy; set algo/correction=truncate, or rollout.engine.dtype=float32",
        ),
        Watch(
            "rollout/truncated",
            lambda first, now: now > 0.5,
            "more than half of the responses run into the length limit (rollout/truncated {value:z.2f}); raise "
            "rollout.max_new_tokens, or add reward_terms=[overlong]",
        ),
        Watch(
            "train/zero_signal",
            lambda first, now: now >= 1.0,
            "no group has rewards that differ (train/zero_signal {value:g}): nothing is learned; take easier or harder "
            "problems, raise rollout.group_size, or replace such groups with algo=dapo or selection=mixed_outcomes",
        ),
    ]


class CollapseWarnings(Callback):
    """Watches entropy, rollout/trainer mismatch, truncation and signal; warns of each once, with the usual remedy.

    Place it after the callbacks that log them.

    Args:
        window: iterations that a mean is taken over; the first window is what later ones are compared with.
        entropy: fraction of the first entropy below which it has collapsed.
        mismatch: mean distance of log-probs, in nats, above which a rise is worth a word.
    """

    def __init__(self, window: int = 10, entropy: float = 0.2, mismatch: float = 0.05) -> None:
        self.window = window
        self._watches = _watches(entropy, mismatch)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Looks at what was logged of this iteration."""
        for watch in list(self._watches):
            if watch.tag not in trainer.callback_metrics:
                continue
            value = watch.add(float(trainer.callback_metrics[watch.tag]), self.window)
            if value is not None:
                self._watches.remove(watch)
                if trainer.is_global_zero:
                    log.warning("iteration %d: %s", batch.iteration + 1, watch.message.format(value=value))

    def state_dict(self) -> dict[str, Any]:
        """Holds what is still watched and what it was at first."""
        return {"watches": {w.tag: {"first": w.first, "recent": list(w.recent)} for w in self._watches}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores it; what was said is not said again."""
        saved = state_dict["watches"]
        self._watches = [watch for watch in self._watches if watch.tag in saved]
        for watch in self._watches:
            watch.first, watch.recent = saved[watch.tag]["first"], deque(saved[watch.tag]["recent"])
