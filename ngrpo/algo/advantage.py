"""Advantages from the rewards of the G responses to each prompt.

NaN as a reward marks an unscored sample; NaN as an advantage excludes a sample from the loss and its counts. Statistics
are made in float64, whatever the dtype of the rewards: of rewards around 10^6 that differ by fractions, float32 would
lose the mean among these, and the squares of large ones are none of its numbers.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def group_relative(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks an advantage that compares the responses of a group: a group of one is refused at start-up."""
    function.group_relative = True  # type: ignore[attr-defined]
    return function


def thresholded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks an advantage that tells right from wrong by the reward's size: nothing may be taken off the reward."""
    function.thresholded = True  # type: ignore[attr-defined]
    return function


def compares_with_best(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks an advantage with a parameter ``best``, the largest reward in use: `ngrpo.algo.best` fills it in."""
    function.compares_with_best = True  # type: ignore[attr-defined]
    return function


def compares_subsets(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks an advantage with a parameter ``k``, the size of subsets of a group: a group of k or fewer is refused."""
    function.compares_subsets = True  # type: ignore[attr-defined]
    return function


def not_negative(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks an advantage that means something for rewards of 0 and above only: others are refused at start-up."""
    function.not_negative = True  # type: ignore[attr-defined]
    return function


def standardised(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks an advantage that divides by the standard deviation of a group and an ``eps`` beside it."""
    function.standardised = True  # type: ignore[attr-defined]
    return function


def is_dead(rewards: Tensor) -> Tensor:
    """The groups without a signal: all scored rewards equal, or none scored.

    The test is exact equality: in float32 the mean of three rewards of 0.9 is not 0.9, and a division by the
    tiny standard deviation that results would turn rounding into an advantage. A group of one (G = 1) has
    nothing to be compared with and is dead only if it is unscored.

    Args:
        rewards: float [P, G]; NaN marks an unscored sample.

    Returns:
        bool [P].
    """
    unscored = rewards.isnan()
    if rewards.shape[-1] == 1:
        return unscored[:, 0]
    highest = rewards.masked_fill(unscored, -math.inf).amax(-1)
    lowest = rewards.masked_fill(unscored, math.inf).amin(-1)
    return highest <= lowest


@group_relative
def group_centred(rewards: Tensor) -> Tensor:
    """``A_i = R_i - mean(R)`` (Dr.GRPO, arXiv 2503.20783).

    Dead groups get exactly 0; in a group of one the mean is taken as 0. Unscored samples (NaN) are excluded from the
    mean and keep NaN: they take no part in the loss.

    Args:
        rewards: float [P, G].

    Returns:
        Advantages [P, G] in the same dtype.
    """
    if rewards.shape[-1] == 1:
        return rewards
    return _centred(rewards).to(rewards.dtype)


def _centred(rewards: Tensor) -> Tensor:
    """See `group_centred`; float64, for a group of two or more."""
    scored = (~rewards.isnan()).sum(-1, keepdim=True)
    mean = rewards.double().nansum(-1, keepdim=True) / scored.clamp(min=1)
    return (rewards.double() - mean).masked_fill(is_dead(rewards)[:, None] & ~rewards.isnan(), 0.0)


@group_relative
@standardised
def group_standardised(rewards: Tensor, eps: float = 1e-6) -> Tensor:
    """``A_i = (R_i - mean(R)) / (std(R) + eps)``, unbiased std (GRPO, arXiv 2402.03300).

    Treats unscored samples and dead groups as `group_centred` does; in a group of one the mean is taken as 0
    and the std as 1 (verl's convention).

    Args:
        rewards: float [P, G].
        eps: positive; 1e-6 in verl and N-GRPO, 1e-4 in TRL.

    Returns:
        Advantages [P, G] in the same dtype.
    """
    if rewards.shape[-1] == 1:
        return rewards / (1.0 + eps)
    centred = _centred(rewards)
    scored = (~rewards.isnan()).sum(-1, keepdim=True)
    variance = centred.square().nansum(-1, keepdim=True) / (scored - 1).clamp(min=1)
    return (centred / (variance.sqrt() + eps)).to(rewards.dtype)


@group_relative
def leave_one_out(rewards: Tensor) -> Tensor:
    """``A_i = R_i - mean of the others' R = n / (n - 1) (R_i - mean(R))`` (RLOO, arXiv 2402.14740).

    Unscored samples keep NaN and are nobody's other; a sample without others gets 0.

    Args:
        rewards: float [P, G], G >= 2.

    Returns:
        Advantages [P, G] in the same dtype.
    """
    scored = (~rewards.isnan()).sum(-1, keepdim=True)
    return (_centred(rewards) * scored / (scored - 1).clamp(min=1)).to(rewards.dtype)


@group_relative
@not_negative
def maxrl(rewards: Tensor) -> Tensor:
    """``A_i = (R_i - mean(R)) / mean(R)``, 0 where no reward is positive (MaxRL, arXiv 2602.02710).

    Follows the gradient of a truncated log-likelihood of success instead of the success rate: rewards of 0 and 1 with
    the probability p of a 1 give ``sum_{j=0}^{n-2} (1 - p)^j grad p`` in expectation, so that a prompt weighs about
    1 / p. For rewards of 0 and above -1 <= A <= n - 1, whatever their scale; negative ones know no bound. Read in code,
    not in the paper: prime-rl's code, which has 0 for a mean of 0 as here; SkyRL's code adds 1e-6 to the mean.

    Args:
        rewards: float [P, G], not negative; NaN is excluded and kept.

    Returns:
        Advantages [P, G] in the same dtype; exactly 0 in a group of one and where all rewards are equal.
    """
    unscored = rewards.isnan()
    mean = rewards.double().nansum(-1, keepdim=True) / (~unscored).sum(-1, keepdim=True).clamp(min=1)
    nothing = (is_dead(rewards)[:, None] | (mean <= 0)) & ~unscored
    return (rewards / mean.masked_fill(mean <= 0, 1.0) - 1.0).masked_fill(nothing, 0.0).to(rewards.dtype)


@group_relative
@compares_with_best
def virtual_best(rewards: Tensor, best: float | None = None, eps: float = 1e-6) -> Tensor:
    """``A_i = (R_i - mean) / (std + eps)`` over the group and one virtual sample of reward ``best``.

    (NGRPO, arXiv 2509.18851.) A group of wrong answers has something to be compared with and gets a negative
    advantage; the virtual sample is never trained on. A group of one is compared with nothing, as in the released code.

    Args:
        rewards: float [P, G]; NaN is excluded and kept.
        best: the virtual sample's reward: the largest that can be had.
        eps: positive.

    Returns:
        Advantages [P, G] in the same dtype.

    Raises:
        ValueError: ``best`` is None.
    """
    best = given_best(best)
    if rewards.shape[-1] == 1:
        return rewards / (1.0 + eps)
    return group_standardised(torch.cat((rewards, torch.full_like(rewards[:, :1], best)), dim=-1), eps)[:, :-1]


@thresholded
@compares_with_best
def by_correctness(
    rewards: Tensor, right: float | None = None, wrong: float | None = None, best: float | None = None
) -> Tensor:
    """A constant for right and one for wrong answers, without statistics of the group (arXiv 2506.01347).

    PSR: right 1, wrong excluded; NSR: right excluded, wrong -1; W-REINFORCE: right 0.1, wrong -1. What is excluded
    gets NaN and is not counted in the loss's denominators either: excluding and zeroing are different losses.

    Args:
        rewards: float [P, G]; NaN is kept.
        right: advantage of rewards of at least ``best``; None excludes them.
        wrong: advantage of the others; None excludes them.
        best: the reward of a right answer.

    Returns:
        Advantages [P, G] in the same dtype.

    Raises:
        ValueError: ``best`` is None.
    """
    best = given_best(best)
    values = (math.nan if value is None else value for value in (right, wrong))
    positive, negative = (torch.full_like(rewards, value) for value in values)
    return torch.where(rewards.isnan(), rewards, torch.where(rewards >= best, positive, negative))


def given_best(best: float | None) -> float:
    """Returns ``best``, which must have been filled in.

    Raises:
        ValueError: it is None.
    """
    if best is None:
        raise ValueError("best is the largest reward in use and cannot be None here, see ngrpo.algo.best")
    return best


def raw(rewards: Tensor) -> Tensor:
    """``A_i = R_i``: REINFORCE without a baseline (Williams 1992); NaN is kept."""
    return rewards
