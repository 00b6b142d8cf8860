"""Per-token estimators of the KL divergence to the reference, from log-probs of the sampled tokens.

p is the policy and q the reference. k1 and k3 estimate KL(p || q) without bias, but what counts in a loss is
the gradient, and there they differ. All take and return float [N]; ``old_log_prob`` is that of the policy which drew
the tokens, a constant, and plays no part in those that assume the tokens to be the policy's own.
"""

from torch import Tensor

from ngrpo.algo.ratio import LOG_RATIO_LIMIT


def k1(log_prob: Tensor, ref_log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """``lp - lp_ref``; as a loss its expected gradient is ZERO: it belongs in the reward, or in a log."""
    return log_prob - ref_log_prob


def k2(log_prob: Tensor, ref_log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """``(lp - lp_ref)^2 / 2``; a biased value, but as a loss it follows grad KL(p || q) on policy."""
    return 0.5 * (log_prob - ref_log_prob).square()


def k3(log_prob: Tensor, ref_log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """``exp(d) - d - 1`` with ``d = lp_ref - lp``; as a loss it follows grad KL(q || p) on policy (GRPO).

    Clamped as in verl: d to +-20 and the result to 10, beyond which the gradient vanishes. Never negative.
    """
    delta = (ref_log_prob - log_prob).clamp(-20.0, 20.0)
    # expm1 keeps the digits that exp(d) - 1 loses when policy and reference nearly agree.
    return (delta.expm1() - delta).clamp(0.0, 10.0)


def weighted_k3(log_prob: Tensor, ref_log_prob: Tensor, old_log_prob: Tensor) -> Tensor:
    """``r k3`` with the importance ratio ``r = exp(lp - lp_old)``, gradient through both (DeepSeek-V3.2).

    Over tokens drawn by the old policy its mean is KL(p || q) and its mean gradient grad KL(p || q), both without bias
    (up to the clamps), on policy and off: the ratio carries the gradient of the sampling that k3 alone leaves out. At
    r = 1 the value is that of k3 and the gradient ``k3 + 1 - exp(d) = -d`` that of k2. (arXiv 2512.02556.)
    """
    ratio = (log_prob - old_log_prob).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    return ratio * k3(log_prob, ref_log_prob, old_log_prob)
