"""Estimators of success at k attempts."""

import torch
from torch import Tensor


def pass_at_k(n: int, c: Tensor | int, k: int) -> Tensor:
    """Probability that at least one of k samples is correct: ``1 - C(n - c, k) / C(n, k)``.

    Unbiased (arXiv 2107.03374), in the stable form ``1 - prod_{j = n-c+1}^{n} (1 - k / j)``; exactly 1 when
    fewer than k samples are wrong.

    Args:
        n: samples drawn per problem.
        c: how many of them are correct, per problem; int64 [...].
        k: attempts allowed.

    Returns:
        float64 [...].

    Raises:
        ValueError: k outside [1, n], or a c outside [0, n].
    """
    correct = torch.as_tensor(c)
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs 1 <= k <= n, but there are n={n} samples per problem")
    if ((correct < 0) | (correct > n)).any():
        raise ValueError(f"the number of correct samples must lie between 0 and n={n}")
    j = torch.arange(1, n + 1, dtype=torch.float64, device=correct.device)
    return 1.0 - torch.where(j > n - correct[..., None], 1.0 - k / j, 1.0).prod(-1)
