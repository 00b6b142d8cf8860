"""An advantage of your own: the reward minus the median of its group, which one lucky response does not move."""

from torch import Tensor

from ngrpo.algo.advantage import group_relative


@group_relative
def median_centred(rewards: Tensor, scale: float = 1.0) -> Tensor:
    """Rewards are [prompts, group]; nan, a response without a reward, stays nan and is excluded from the loss."""
    return scale * (rewards - rewards.nanmedian(-1, keepdim=True).values)
