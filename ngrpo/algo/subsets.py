"""Advantages from the subsets of k responses of a group: Pass@k, and its likeness for graded rewards, max@k."""

import torch
from torch import Tensor

from ngrpo.algo.advantage import compares_subsets, compares_with_best, given_best, group_relative, is_dead, thresholded


@group_relative
@compares_subsets
@thresholded
@compares_with_best
def passk(rewards: Tensor, k: int = 2, best: float | None = None, eps: float = 1e-6) -> Tensor:
    """How much likelier than a random subset of k responses one with this response holds a right answer.

        rho = 1 - C(n - c, k) / C(n, k)        sd = sqrt(rho (1 - rho))
        A_right = (1 - rho) / (sd + eps)
        A_wrong = (1 - rho - C(n - c - 1, k - 1) / C(n - 1, k - 1)) / (sd + eps)

    with c right answers among n (arXiv 2508.10751, eqs. 14 and 15; mean and population std over all subsets). On hard
    prompts one right answer carries almost everything; where fewer than k answers are wrong the signal vanishes, which
    protects what differs. k = 1 is the standardisation of GRPO with the population std. eps is in the released code,
    not in the paper. That code tests rewards for 1 and 0 and hands on any other; here right is what reaches ``best``.
    The paper's k was not read. This is not verl's ``grpo_passk``, which rewards the best response alone.

    Args:
        rewards: float [P, G]; NaN is excluded and kept.
        k: responses in a subset, below G.
        best: the reward of a right answer.
        eps: positive.

    Returns:
        Advantages [P, G] in the same dtype; 0 in a group with k scored responses or fewer.

    Raises:
        ValueError: ``best`` is None.
    """
    best = given_best(best)
    unscored = rewards.isnan()
    scored = (~unscored).sum(-1, keepdim=True)
    wrong = (rewards < best).sum(-1, keepdim=True)
    failed = subset_share(wrong, scored, k)
    failed_with_one = subset_share(wrong - 1, scored - 1, k - 1)
    found = torch.where(rewards >= best, failed, failed - failed_with_one) / ((failed * (1 - failed)).sqrt() + eps)
    return found.masked_fill(scored <= k, 0.0).to(rewards.dtype).masked_fill(unscored, torch.nan)


@group_relative
@compares_subsets
def maxk(rewards: Tensor, k: int = 2) -> Tensor:
    """The best of k responses with this one, less the best of k without it: ``A_i = q_i - v_i``.

        q_i = mean over the subsets of k with i of max R        v_i = mean over those without i of max R

    (arXiv 2510.23393, eq. 9: ``k / n q`` is its reward, whose policy gradient is that of E[max of k]; v_i does not
    contain i, so that the gradient stays unbiased.) Pass@k for graded rewards; no std. Of 0 and 1 it is `passk` up to a
    factor, and k = 1 is `ngrpo.algo.advantage.leave_one_out`. The baselines of the paper subtract the group's mean and
    std instead. By our reading q - v is also what leave-two-out centring comes to; the paper of that name was not read.

    Args:
        rewards: float [P, G]; NaN is excluded and kept.
        k: responses in a subset, below G.

    Returns:
        Advantages [P, G] in the same dtype, which sum to 0; 0 in a group with k scored responses or fewer, and exactly
        0 where all rewards are equal.
    """
    unscored = rewards.isnan()
    n = (~unscored).sum(-1, keepdim=True)
    ascending, order = rewards.double().sort(-1)  # NaN last
    # Less the best, which changes no difference: where every subset holds it, no rounding is left over.
    ranked = (ascending - ascending.nan_to_num(-torch.inf).amax(-1, keepdim=True)).nan_to_num(0.0)
    rank = torch.arange(1, rewards.shape[-1] + 1, device=rewards.device)
    largest = subset_share(rank - 1, n - 1, k - 1) * ranked
    above = subset_share(rank - 2, n - 2, k - 2) * ranked * (k - 1) / (n - 1).clamp(min=1)
    with_it = largest + _after(above)
    below = subset_share(rank - 1, n - 2, k - 1) * ranked
    beyond = subset_share(rank - 2, n - 2, k - 1) * ranked
    without_it = (below.cumsum(-1) - below + _after(beyond)) * k / (n - 1).clamp(min=1)
    found = torch.empty_like(ascending).scatter_(-1, order, with_it - without_it)
    dead = is_dead(rewards)[:, None] | (n <= k)
    return found.masked_fill(dead, 0.0).to(rewards.dtype).masked_fill(unscored, torch.nan)


def subset_share(part: Tensor, whole: Tensor, size: int) -> Tensor:
    """``C(part, size) / C(whole, size)``: the share of the subsets of a whole that lie in a part of it.

    As a product, exactly 1 where the part is the whole and exactly 0 where it is smaller than a subset.

    Args:
        part: int64, any shape.
        whole: int64, of a shape that goes with it; less than ``size`` means nothing.
        size: of a subset; 1 results from 0 or less.

    Returns:
        float64.
    """
    share = torch.ones_like(part + whole, dtype=torch.float64)
    for taken in range(size):
        share = share * (part - taken).clamp(min=0) / (whole - taken).clamp(min=1)
    return share


def _after(values: Tensor) -> Tensor:
    """Returns the sum of those after each along the last dimension."""
    return values.flip(-1).cumsum(-1).flip(-1) - values
