"""The best engine that can run here."""

import logging

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.rollout.torch_engine.engine import TorchEngine

log = logging.getLogger(__name__)


def auto_engine(
    model: ModelSource,
    exploration: Exploration,
    max_prompt_tokens: int,
    max_new_tokens: int,
    max_batch_size: int = 256,
    dense_record_gib: float = 16.0,
) -> RolloutEngine:
    """Returns vLLM's engine where a tested vLLM is installed, else the torch engine, and logs which.

    Args:
        model: where the weights come from.
        exploration: the training strategy.
        max_prompt_tokens: longest prompt.
        max_new_tokens: longest response.
        max_batch_size: most rollouts running at once.
        dense_record_gib: see `ngrpo.rollout.vllm.engine.VllmEngine`.
    """
    from ngrpo.rollout.vllm.engine import VllmEngine

    try:
        engine = VllmEngine(
            model,
            exploration,
            max_prompt_tokens,
            max_new_tokens,
            max_batch_size,
            dense_record_gib=dense_record_gib,
        )
    except SettingError as reason:
        log.info("rollout=auto takes the torch engine: %s", reason)
        return TorchEngine(model, max_batch_size)
    log.info("rollout=auto takes vLLM")
    return engine
