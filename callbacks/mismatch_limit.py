"""The limit on how far the engine's log-probs may be from the trainer's."""

import logging
import math
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer

from ngrpo.checkpoint.folders import how_to_resume
from ngrpo.distributed.collectives import from_first
from ngrpo.errors import RunError, SettingError
from ngrpo.rollout.nonfinite_scores import cause_and_remedy
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.training.module import PolicyOptimization
from ngrpo.types.problems import PromptBatch

log = logging.getLogger(__name__)

_TAG = "rollout/mismatch_mean"
_AGE = "rollout/age"
_MADE = "policy/sequences"
"""Sequences that were learned from; none where every step was skipped."""

FLOAT32 = (1e-3, 0.1)
"""Nats above which is warned, and stopped, where trainer and engine compute in float32: 1e-5 is normal."""
FLOAT16 = (0.02, 0.5)
"""The same where both compute in float16, or one in float32: 0.003 is normal."""
COARSE = (0.1, 1.0)
"""The same where one of them rounds more (bfloat16, TF32): 0.02 is normal."""
_LARGE = 10.0
"""Scores beyond it (densities are about -d/2) are compared relative to their size."""


class MismatchLimit(Callback):
    """Warns once, and ends the run, where engine and trainer give the same tokens other log-probs.

    Prefetched rollouts are not checked: their weights are older than the trainer's, so that the policy's
    change is part of the difference. Optimiser steps are not, since the first log-probs of a batch are compared.
    With ``rollout.exact`` any difference ends the run.

    Place it after the callbacks that log ``rollout/age``.

    Args:
        worker: has the engine.
        warn: mean nats above which is warned; null for what the numbers that are computed with allow.
        stop: mean nats above which the run ends; null in the same way.
        run_dir: the run's folder, for the message.

    Raises:
        SettingError: a limit is not positive.
    """

    def __init__(
        self,
        worker: RolloutWorker,
        warn: float | None = None,
        stop: float | None = None,
        run_dir: Path | None = None,
    ) -> None:
        for name, value in (("warn", warn), ("stop", stop)):
            if value is not None and not value > 0:
                raise SettingError(f"callbacks.mismatch_limit.{name}={value} must be positive; null chooses a value.")
        self.worker = worker
        self.warn = warn
        self.stop = stop
        self.run_dir = run_dir
        self._limits: tuple[float, float] | None = None
        self._said = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: PolicyOptimization, outputs: Any, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Looks at what was logged of this iteration, the same on all ranks.

        Raises:
            RunError: the mean is above ``stop``, or no number.
        """
        metrics = trainer.callback_metrics
        value = float(metrics.get(_TAG, math.nan))
        if _TAG in metrics and math.isnan(value) and float(metrics.get(_MADE, 1.0)) > 0:
            self._refuse_no_number(batch)
        if float(metrics.get(_AGE, 0.0)) > 0 or math.isnan(value):
            return
        if self._limits is None:  # the engine is the first rank's of a tensor group
            self._limits = from_first(lambda: self.limits(pl_module))
        if self.worker.settings.exact:
            self._check_exact(value, batch)
            return
        warn, stop = self._limits
        told = f"the engine's log-probs are {value:.3g} nats from the trainer's on average ({_TAG}"
        if value > stop:
            raise RunError(
                f"iteration {batch.iteration + 1}: {told}, above {stop:.3g}) and what is learned would be wrong; take "
                "another engine or model, or raise callbacks.mismatch_limit.stop; "
                f"{self._resume()}.",
                everywhere=True,
            )
        if value > warn and not self._said:
            self._said = True
            if trainer.is_global_zero:
                log.warning(
                    "iteration %d: %s, above %.3g): updates become off-policy; set algo/correction=truncate, or "
                    "rollout.engine.dtype=float32", batch.iteration + 1, told, warn,
                )  # fmt: skip

    def _refuse_no_number(self, batch: PromptBatch) -> None:
        """Ends a run whose engine overflows where the trainer does not; steps that the trainer spoils are skipped."""
        raise RunError(
            f"iteration {batch.iteration + 1}: the engine's log-probs are not a number where the trainer's are one "
            f"({_TAG}), and what is learned would be wrong: {cause_and_remedy(self.worker.engine.dtype)}; "
            f"{self._resume()}.",
            everywhere=True,
        )

    def _check_exact(self, value: float, batch: PromptBatch) -> None:
        """Takes any difference for an error where there must be none."""
        if value > 0:
            raise RunError(
                f"iteration {batch.iteration + 1}: the engine's log-probs are {value:.3g} nats from the trainer's on "
                f"average ({_TAG}), and rollout.exact=true promises that they are equal; set rollout.exact=false, "
                f"or take another GPU or model; {self._resume()}.",
                everywhere=True,
            )

    def _resume(self) -> str:
        return how_to_resume(self.run_dir) if self.run_dir else "nothing was saved"

    def limits(self, module: PolicyOptimization) -> tuple[float, float]:
        """Returns the nats above which is warned, and stopped."""
        engine = self.worker.engine
        tf32 = torch.cuda.is_available() and torch.get_float32_matmul_precision() != "highest"
        dtypes = {module.computed_in, engine.dtype}
        in_tf32 = torch.float32 in dtypes and (tf32 or engine.tf32)  # TF32 concerns float32 alone
        fine = FLOAT32 if dtypes == {torch.float32} else FLOAT16
        scale = 1.0 if module.exploration.scores_tokens else max(1.0, module.policy.lm.config.hidden_size / 2 / _LARGE)
        warn, stop = (limit * scale for limit in (COARSE if in_tf32 or torch.bfloat16 in dtypes else fine))
        return self.warn or warn, self.stop or stop
