"""Importance ratio of the current policy to the one before this rollout batch, by token or by sequence.

All return the LOG ratio of every token, [N], clamped to +-20 so that its exponential stays finite in float32.

Those of whole sequences have the same value at all tokens of one, and the gradient of a token's entry reaches that
token alone (as verl's code has it). Where all tokens of a sequence weigh alike, the sum over them has the gradient of
the mean by which the ratio is defined. Where they do not, since a token weight, a mask or a rejection tells them apart,
each token learns by its own weight, and one that is left out learns nothing; through the mean it would learn what the
others do.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ngrpo.algo.marks import of_sequence, one_advantage, reads_share, signed
from ngrpo.algo.segments import per_sequence_mean, sequence_index

LOG_RATIO_LIMIT = 20.0


class BoundedRatio(NamedTuple):
    """Result of a ratio that bounds tokens by itself; others return the log ratios alone.

    Attributes:
        log_ratio: float [N], or [A, N] of one that is `signed`.
        clipped: bool, the same shape; a bound is active, so the token has no policy gradient. None if there is none.
    """

    log_ratio: Tensor
    clipped: Tensor | None = None


def token(log_prob: Tensor, old_log_prob: Tensor, lengths: Tensor) -> Tensor:
    """``log r_t = lp_t - lp_old_t`` (PPO, GRPO); every token stands for itself, so ``lengths`` plays no part.

    Args:
        log_prob: float [N], under the current policy.
        old_log_prob: float [N], a constant.
        lengths: int64 [S].

    Returns:
        Log ratios [N].
    """
    return (log_prob - old_log_prob).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


@one_advantage
@of_sequence
@reads_share
def sequence(log_prob: Tensor, old_log_prob: Tensor, lengths: Tensor, share: Tensor | None = None) -> Tensor:
    """``log s = mean_t (lp_t - lp_old_t)``, the same for all tokens of a sequence (GSPO, arXiv 2507.18071).

    In the mean tokens count by their shares: one that k responses have in common is learned from once. Meant for
    `seq_mean_token_mean`, under which every sequence counts once.

    Args:
        log_prob: float [N], under the current policy.
        old_log_prob: float [N], a constant.
        lengths: int64 [S].
        share: see `ngrpo.algo.loss_terms.LossInputs`; float [N], None for 1 throughout.

    Returns:
        Log ratios [N].
    """
    mean = per_sequence_mean((log_prob - old_log_prob).detach(), lengths, share)
    return _by_token(mean, log_prob, lengths)


@of_sequence
@reads_share
def sequence_token(log_prob: Tensor, old_log_prob: Tensor, lengths: Tensor, share: Tensor | None = None) -> Tensor:
    """``log s_t = sg(log s) + lp_t - sg(lp_t)``: `sequence` for advantages by token (GSPO-token).

    Args:
        log_prob: float [N], under the current policy.
        old_log_prob: float [N], a constant.
        lengths: int64 [S].
        share: as in `sequence`.

    Returns:
        Log ratios [N].
    """
    return sequence(log_prob, old_log_prob, lengths, share)


@one_advantage
@of_sequence
@signed
@reads_share
def sequence_clipped(
    log_prob: Tensor,
    old_log_prob: Tensor,
    lengths: Tensor,
    advantages: Tensor,
    low: float = 0.4,
    high: float = 0.4,
    share: Tensor | None = None,
) -> BoundedRatio:
    """``log s = mean_t d'_t``, with ``d = lp - lp_old`` bounded above where A > 0 and below where A < 0, by token.

    (GMPO, arXiv 2507.20673, eq. 4.) The ratio of `sequence`, clipped before the mean instead of after it: a token
    beyond its bound has no gradient and still a value. Bounds are in LOG space, ``d' <= high`` and ``d' >= -low``;
    without any it is the ratio of GSPO. Goes with ``clip=unclipped`` and `seq_mean_token_mean`. verl's code adds 1e-8
    to the length.

    Args:
        log_prob: float [N], under the current policy.
        old_log_prob: float [N], a constant.
        lengths: int64 [S].
        advantages: float [A, N], constants, the same for all tokens of a sequence.
        low: largest decrease of a log-prob where A < 0.
        high: largest increase where A > 0.
        share: as in `sequence`.

    Returns:
        Log ratios [A, N], and the tokens that are beyond their bound.
    """
    change = (log_prob - old_log_prob).detach().expand_as(advantages)
    bounded = torch.where(advantages > 0, change.clamp(max=high), change)
    bounded = torch.where(advantages < 0, bounded.clamp(min=-low), bounded)
    clipped = bounded != change
    means = (per_sequence_mean(channel, lengths, share) for channel in bounded)
    made = [_by_token(mean, log_prob, lengths, ~held) for mean, held in zip(means, clipped, strict=True)]
    return BoundedRatio(torch.stack(made), clipped)


def _by_token(mean: Tensor, log_prob: Tensor, lengths: Tensor, free: Tensor | None = None) -> Tensor:
    """Returns a number of each sequence at all of its tokens, within the limit, with a gradient of 1 to the token.

    Args:
        mean: float [S], a constant.
        log_prob: float [N], under the current policy.
        lengths: int64 [S].
        free: tokens that have a gradient, bool [N]; None for all. None have one beyond the limit.
    """
    index = sequence_index(lengths, log_prob.shape[0])
    moves = (mean.abs() <= LOG_RATIO_LIMIT)[index]
    # In these brackets, whose value is exactly 0: a sum from the left would round it to the digits of the log-prob.
    moved = (log_prob - log_prob.detach()) * (moves if free is None else moves & free)
    return mean.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)[index] + moved
