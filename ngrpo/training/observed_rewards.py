"""The rewards of an iteration, held to what the advantage can use.

Rewards that tell how small and how large they become are compared with it before the start
(`ngrpo.entrypoints.validation.check_rewards`, `ngrpo.algo.best`). A user's own tell nothing, and what they give is
known only now.
"""

import math

import torch
from torch import Tensor

from ngrpo.algo.best import largest_allowed
from ngrpo.algo.marks import inner
from ngrpo.algo.moments import Reduce
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.errors import RunError

_ROUNDING = 1e-5
"""Of sums of terms, as a share: a run is not to stumble over an ulp."""


def check_observed(rewards: Tensor, algorithm: Algorithm, reduce: Reduce) -> None:
    """Ends a run of whose rewards the advantage would make something else than it is for (a collective).

    Args:
        rewards: of this rank's responses, terms included; float32, any shape, NaN where there is none.
        algorithm: its advantage.
        reduce: over the data ranks.

    Raises:
        RunError: on all ranks; a reward is negative where none may be, or above the largest that there should be.
    """
    advantage = inner(algorithm.advantage)
    may_be_negative, best = not getattr(advantage, "not_negative", False), largest_allowed(algorithm)
    if may_be_negative and best is None:
        return
    scored = rewards[~rewards.isnan()].double()
    nothing = scored.new_full((1,), -math.inf)
    extremes = torch.stack([torch.cat((side, nothing)).max() for side in (scored, -scored)])
    highest, negated_lowest = reduce(extremes, "max").tolist()
    if not may_be_negative and negated_lowest > 0:
        raise RunError(
            f"reward and reward_terms gave {-negated_lowest:g}, and algo.advantage={advantage.__name__} needs rewards "
            "of 0 or above; add to them what they lack, or start with another algo/advantage.",
            everywhere=True,
        )
    if best is not None and highest > best + _ROUNDING * abs(best):
        raise RunError(
            f"reward and reward_terms gave {highest:g}, and algo.advantage={advantage.__name__} takes "
            f"algo.advantage.best={best:g} for the largest, so that solved groups would be rewarded for nothing; "
            f"start with algo.advantage.best={highest:g}, or what else the largest one is.",
            everywhere=True,
        )
