"""Importance ratio of the current policy to the one before this rollout batch, by token or by sequence.

Both levels return the LOG ratio of every token, [N], clamped to +-20 so that its exponential stays finite in
float32.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ngrpo.algo.segments import per_sequence_mean, sequence_index

LOG_RATIO_LIMIT = 20.0


def one_advantage(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a ratio of whole sequences: a credit by token is refused at start-up."""
    function.one_advantage = True  # type: ignore[attr-defined]
    return function


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
def sequence(log_prob: Tensor, old_log_prob: Tensor, lengths: Tensor) -> Tensor:
    """``log s = mean_t (lp_t - lp_old_t)``, the same for all tokens of a sequence (GSPO, arXiv 2507.18071).

    The gradient reaches every token of the sequence through the mean. Meant for `seq_mean_token_mean`, under
    which every sequence counts once.

    Args:
        log_prob: float [N], under the current policy.
        old_log_prob: float [N], a constant.
        lengths: int64 [S].

    Returns:
        Log ratios [N].
    """
    mean = per_sequence_mean(log_prob - old_log_prob, lengths)
    return mean.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)[sequence_index(lengths, log_prob.shape[0])]


def sequence_token(log_prob: Tensor, old_log_prob: Tensor, lengths: Tensor) -> Tensor:
    """``log s_t = sg(log s) + lp_t - sg(lp_t)``: the value of `sequence`, gradient token by token (GSPO-token).

    Args:
        log_prob: float [N], under the current policy.
        old_log_prob: float [N], a constant.
        lengths: int64 [S].

    Returns:
        Log ratios [N].
    """
    # In these brackets, whose value is exactly 0: a sum from the left would round log s to the digits of the log-prob.
    return sequence(log_prob, old_log_prob, lengths).detach() + (log_prob - log_prob.detach())
