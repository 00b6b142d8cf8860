"""The warning of responses whose log-probs are not finite: the engine's numbers overflowed, and so chose no token."""

import logging
from collections.abc import Sequence

import torch

from ngrpo.rollout.engine import RolloutEngine
from ngrpo.types.rollouts import Rollout

log = logging.getLogger(__name__)


def warn_of_nonfinite(rollouts: Sequence[Rollout], engine: RolloutEngine) -> bool:
    """Says how many there are among rollouts, and what to do; returns whether there are any.

    Args:
        rollouts: R of them.
        engine: has made them.
    """
    broken = sum(not bool(rollout.log_probs.isfinite().all()) for rollout in rollouts)
    if broken:
        log.warning(
            "%d of %d responses have log-probs that are not finite, so that their tokens mean nothing: %s",
            broken,
            len(rollouts),
            cause_and_remedy(engine.dtype),
        )
    return broken > 0


def cause_and_remedy(dtype: torch.dtype) -> str:
    """Returns a clause on an engine whose numbers are not finite."""
    name = str(dtype).removeprefix("torch.")
    if dtype == torch.float16:
        return f"the model's numbers are beyond the range of rollout.engine.dtype={name}; set it to bfloat16"
    return f"the model overflows in rollout.engine.dtype={name}; take another model or engine"
