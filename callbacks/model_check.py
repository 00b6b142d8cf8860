"""The comparison of trainer and engine with the model's own logits, before the first iteration."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning import Callback, Trainer

from ngrpo.distributed.collectives import from_first, gathered_everywhere
from ngrpo.engine_check.engine_rollouts import engine_rollouts
from ngrpo.errors import RunError
from ngrpo.model_check.comparison import (
    Finding,
    Numbers,
    OwnModel,
    compare,
    requests,
    sampling,
    too_coarse,
)
from ngrpo.model_check.known import has_passed, key, remember
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.overflow import beyond_range
from ngrpo.modeling.precision import computing_in
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.training.module import PolicyOptimization
from ngrpo.types.rollouts import Request, Rollout

log = logging.getLogger(__name__)

_OFF = "callbacks.model_check=null"


class ModelCheck(Callback):
    """Refuses a model that the trainer or the engine computes otherwise than transformers does.

    Place it after the rollout callback. What has passed once is not compared again (see `ngrpo.model_check.known`),
    except in a run that resumes from a checkpoint, whose weights are new.

    Args:
        worker: has the engine.
        source: of the model.
        settings: of the run, resolved.
    """

    def __init__(self, worker: RolloutWorker, source: ModelSource, settings: Mapping[str, Any]) -> None:
        self.worker = worker
        self.source = source
        self.settings = settings

    def on_train_start(self, trainer: Trainer, pl_module: PolicyOptimization) -> None:
        """Compares, and hands the engine its weights again.

        Raises:
            RunError: trainer or engine deviate by more than rounding, or the engine makes no rollouts.
        """
        name = key(self.source, self.settings, type(self.worker.exploration))
        if all(gathered_everywhere(trainer.ckpt_path is None and has_passed(name))):
            return
        start = time.perf_counter()
        asked = self._requests()
        rollouts = self._rollouts(asked)
        findings = compared(pl_module, self.worker, asked, rollouts)
        refused = [one for rank in gathered_everywhere(findings) for one in rank if one.deviation.excessive]
        if refused:
            worst = max(refused, key=_excess)
            overflow = _overflow(pl_module, refused, rollouts)
            raise RunError(_refusal(self.source.path, worst, overflow), everywhere=True)
        self.worker.transfer(refresh=False)
        coarsest = max((one for one in findings if one.kind == "plain"), key=lambda one: one.deviation.mean_limit)
        if not coarsest.deviation.telling:
            limit, of = coarsest.deviation.mean_limit, f"the {coarsest.path}"
            log.warning(too_coarse(self.source.path, of, coarsest.numbers, limit, "compute in float32"))
        elif trainer.is_global_zero:
            remember(name)
        largest = max(one.deviation.max for one in findings)
        log.info(
            "trainer and engine compute the model's own logits (%.2g nats at most; %.1f s)",
            largest,
            time.perf_counter() - start,
        )

    def _requests(self) -> list[Request]:
        vocabulary = min(len(self.worker.tokenizer), self.source.config().vocab_size)
        return requests(vocabulary, self.settings["data"]["max_prompt_tokens"], self.worker.exploration.mixes)

    def _rollouts(self, asked: Sequence[Request]) -> list[Rollout]:
        """Returns the engine's, on all ranks of a tensor group; the engine sleeps then."""
        how = sampling(self.worker.settings.temperature, self.worker.settings.max_new_tokens)
        rollouts = engine_rollouts(self.worker.engine, asked, how, lambda: self.worker.bound, self.source.path)
        self.worker.sleep()
        return rollouts


def compared(
    module: PolicyOptimization, worker: RolloutWorker, asked: Sequence[Request], rollouts: Sequence[Rollout]
) -> list[Finding]:
    """Compares rollouts of the engine with the model's own logits (a collective when sharded)."""
    policy = module.policy
    own = OwnModel(
        policy,
        module.exploration,
        worker.settings.temperature,
        lambda: module.forward_passes.precision(policy),
        Numbers(module.computed_in),  # not the model's own: adapters are float32 in every model
    )
    engine = worker.engine
    numbers = from_first(lambda: Numbers.of(engine))
    return compare(own, rollouts, [one.explore for one in asked], module.scorer.training_log_probs(rollouts), numbers)


def _excess(finding: Finding) -> float:
    deviation = finding.deviation
    if deviation.without_mixtures:
        return math.inf
    return max(deviation.mean / deviation.mean_limit, deviation.max / deviation.max_limit)


def _overflow(module: PolicyOptimization, refused: Sequence[Finding], rollouts: Sequence[Rollout]) -> str | None:
    """Returns the module whose output is beyond the range of float16, where that explains findings (a collective).

    Mixtures are left out: an engine that overflows records weights that are not finite.
    """
    if not any(one.numbers.dtype == torch.float16 and not math.isfinite(one.deviation.max) for one in refused):
        return None
    with computing_in(module.policy, torch.float16):
        return module.scorer.overflow(module.policy, [one.without_mixtures() for one in rollouts])


def _refusal(path: str, worst: Finding, overflow: str | None) -> str:
    if overflow is not None:
        return f"model.path={path} cannot be computed in float16: {beyond_range(overflow)}."
    return (
        f"model.path={path} would be trained wrongly: the {worst.path} differs from the model's own logits by {worst}; "
        f"choose another model{', or another engine' * (worst.path == 'engine')}, or set {_OFF} to continue anyway."
    )
