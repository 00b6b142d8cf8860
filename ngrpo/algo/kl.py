"""Per-token estimators of the KL divergence to the reference, from log-probs of the sampled tokens.

p is the policy and q the reference. k1 and k3 estimate KL(p || q) without bias, but what counts in a loss is
the gradient, and the three differ there. All take and return float [N].
"""

from torch import Tensor


def k1(log_prob: Tensor, ref_log_prob: Tensor) -> Tensor:
    """``lp - lp_ref``; as a loss its expected gradient is ZERO: it belongs in the reward, or in a log."""
    return log_prob - ref_log_prob


def k2(log_prob: Tensor, ref_log_prob: Tensor) -> Tensor:
    """``(lp - lp_ref)^2 / 2``; a biased value, but as a loss it follows grad KL(p || q) on policy."""
    return 0.5 * (log_prob - ref_log_prob).square()


def k3(log_prob: Tensor, ref_log_prob: Tensor) -> Tensor:
    """``exp(d) - d - 1`` with ``d = lp_ref - lp``; as a loss it follows grad KL(q || p) on policy (GRPO).

    Clamped as in verl: d to +-20 and the result to 10, beyond which the gradient vanishes. Never negative.
    """
    delta = (ref_log_prob - log_prob).clamp(-20.0, 20.0)
    # expm1 keeps the digits that exp(d) - 1 loses when policy and reference nearly agree.
    return (delta.expm1() - delta).clamp(0.0, 10.0)
