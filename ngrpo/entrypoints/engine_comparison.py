"""The comparison of an engine with PyTorch before an evaluation or samples, for which no policy is loaded."""

from collections.abc import Mapping

import torch
from omegaconf import DictConfig

from ngrpo.config.environment import stored
from ngrpo.engine_check import probe
from ngrpo.engine_check.own_decisions import OwnModel
from ngrpo.engine_check.trial import EngineTrial
from ngrpo.engine_check.verdict import Verdict
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.model_check.comparison import Numbers
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.policy import ScoringModel
from ngrpo.rollout.engine import RolloutEngine

_ROOM = 1.3
"""Free memory of a GPU over the weights' that lets the model be beside the engine there."""


def check_engine(
    engine: RolloutEngine, bound: BoundExploration, source: ModelSource, config: DictConfig, vocabulary: int
) -> None:
    """Refuses an engine that decides, records or scores otherwise than PyTorch, unless it has passed earlier.

    The weights stay those that it has loaded; no transfer is tried, since there will be none. The model is on the
    engine's GPU where there is room, else on the CPU, and is dropped afterwards.

    Args:
        engine: started, and awake.
        bound: the strategy.
        source: of the model.
        config: checked, of ``conf/evaluate.yaml`` or ``conf/sample.yaml``.
        vocabulary: number of the tokenizer's ids.

    Raises:
        RunError: the engine differs by more than rounding, or makes no rollouts.
    """
    if not engine.checked_as:
        return
    verdict = Verdict(engine.checked_as, source, stored(config), bound.strategy)
    if verdict.known():
        return
    policy = _policy(source, bound.parameters, engine.dtype)
    numbers = Numbers.of(engine)
    own = OwnModel(policy, probe.mixing_often(bound), probe.TEMPERATURE, numbers)
    limits = probe.Limits(vocabulary, config.data.max_prompt_tokens, config.rollout.max_new_tokens)
    with torch.no_grad():
        findings = EngineTrial(engine, own, limits, source.path).findings(None)
    verdict.give(findings, remember=True)


def _policy(source: ModelSource, learned: Mapping[str, torch.Tensor], dtype: torch.dtype) -> ScoringModel:
    """Loads the model in the engine's numbers, rounded as the engine rounds them."""
    policy = ScoringModel(source.load(), learned)
    for parameter in policy.lm.parameters():
        parameter.data = parameter.data.to(dtype)
    size = sum(parameter.numel() * parameter.element_size() for parameter in policy.parameters())
    fits = torch.cuda.is_available() and torch.cuda.mem_get_info()[0] > _ROOM * size
    return policy.to("cuda" if fits else "cpu")
