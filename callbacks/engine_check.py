"""The comparison of the rollout engine with PyTorch, before the first iteration."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from lightning import Callback, Trainer
from torch.distributed.fsdp import FSDPModule

from ngrpo.distributed.collectives import from_first, gathered_everywhere
from ngrpo.engine_check import probe
from ngrpo.engine_check.own_decisions import OwnModel
from ngrpo.engine_check.trial import EngineTrial, WeightTransfer
from ngrpo.engine_check.verdict import Verdict
from ngrpo.model_check.comparison import Numbers
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.training.module import PolicyOptimization


class EngineCheck(Callback):
    """Refuses an engine that decides, records or scores otherwise than PyTorch, or keeps weights that were replaced.

    Place it after the rollout callback. It is for engines that say so (`RolloutEngine.checked_as`), and what has passed
    once is not compared again.

    Args:
        worker: has the engine.
        source: of the model.
        settings: of the run, resolved.
    """

    def __init__(self, worker: RolloutWorker, source: ModelSource, settings: Mapping[str, Any]) -> None:
        self.worker = worker
        self.source = source
        self.settings = settings

    @torch.no_grad()
    def on_train_start(self, trainer: Trainer, pl_module: PolicyOptimization) -> None:
        """Compares, and leaves the engine with the policy's weights.

        Raises:
            RunError: the engine differs by more than rounding, or makes no rollouts.
        """
        engine = self.worker.engine
        checked_as = from_first(lambda: engine.checked_as)
        if not any(gathered_everywhere(checked_as)):
            return
        verdict = Verdict(checked_as, self.source, self.settings, self.worker.exploration)
        if all(gathered_everywhere(verdict.known())):
            return
        trial = EngineTrial(engine, self._own(pl_module), self._limits(), self.source.path)
        transfer = WeightTransfer(self.worker.sleep, partial(self.worker.transfer, refresh=False))
        findings = trial.findings(transfer)
        verdict.give(findings, trainer.is_global_zero)

    def _own(self, module: PolicyOptimization) -> OwnModel:
        engine = self.worker.engine
        bound = from_first(lambda: probe.mixing_often(self.worker.bound))
        numbers = from_first(lambda: Numbers.of(engine))
        if isinstance(module.policy, FSDPModule):  # it computes in no other dtype than the trainer's
            own = Numbers(module.computed_in)
            numbers = max(numbers, own, key=lambda one: torch.finfo(one.dtype).eps)
        return OwnModel(module.policy, bound, probe.TEMPERATURE, numbers)

    def _limits(self) -> probe.Limits:
        vocabulary = min(len(self.worker.tokenizer), self.source.config().vocab_size)
        data, rollout = self.settings["data"], self.worker.settings
        return probe.Limits(vocabulary, data["max_prompt_tokens"], rollout.max_new_tokens)
