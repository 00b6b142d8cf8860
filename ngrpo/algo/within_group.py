"""Selection inside a group: which of the responses to a prompt are learned from, by something else than the reward."""

import math

import torch
from torch import Tensor

from ngrpo.algo.marks import keeps_k


@keeps_k
def shortest(rewards: Tensor, lengths: Tensor, k: int = 2) -> Tensor:
    """Keeps the k shortest responses of each group (GFPO, arXiv 2508.09726, algorithm 1).

    Sample many, train on few: statistics, loss and counts are those of the kept responses. The paper divides by the
    population std and leaves the tokens of the others in its denominator; here the std is the advantage's own and they
    leave it, so that steps are larger by the ratio of the two counts. Responses at the length limit are the longest.
    The paper keeps at most 8 of 8 to 24. Here k is the same for all prompts; its adaptive k, 4, 6 or 8 by the quartile
    of a prompt's mean reward, is not built.

    Args:
        rewards: float [P, G]; NaN marks an unscored response, which is never kept.
        lengths: float [P, G], generated tokens.
        k: responses to keep; of equal ones the first, and all where there are fewer.

    Returns:
        The rewards, NaN where a response is not kept.
    """
    return _first(lengths, rewards, k)


@keeps_k
def token_efficient(rewards: Tensor, lengths: Tensor, k: int = 2) -> Tensor:
    """Keeps the k responses of the largest reward per token (GFPO, arXiv 2508.09726); see `shortest`.

    With rewards of 0 and 1 a group that has k right answers keeps only those, and has no signal then.
    """
    return _first(-rewards / lengths, rewards, k)


def _first(metric: Tensor, rewards: Tensor, k: int) -> Tensor:
    order = metric.masked_fill(rewards.isnan(), math.inf).argsort(dim=-1, stable=True)
    return rewards.masked_fill(order.argsort(dim=-1) >= k, torch.nan)
