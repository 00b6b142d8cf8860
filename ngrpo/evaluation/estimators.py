"""Estimators of success at k attempts."""

from collections.abc import Sequence

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


def majority_at_k(votes: Tensor, correct: Tensor, k: int) -> Tensor:
    """Probability that the most frequent of k answers is right (self-consistency, arXiv 2203.11171).

    The n samples make ``n // k`` disjoint groups of k consecutive ones, over which the estimate is a mean; samples are
    exchangeable, so it is unbiased. Samples beyond the last whole group are not used. Among equally frequent answers
    one is drawn at random: a tie counts as the share of its answers that is right. Samples without an answer do not
    vote; a group without a vote is wrong.

    Args:
        votes: a number for each answer, equal where the answers are, negative for no answer; int64 [..., n].
        correct: whether each answer is right; bool [..., n].
        k: size of a group.

    Returns:
        float64 [...].

    Raises:
        ValueError: k outside [1, n].
    """
    n = votes.shape[-1]
    if not 1 <= k <= n:
        raise ValueError(f"maj@{k} needs 1 <= k <= n, but there are n={n} samples per problem")
    groups = (*votes.shape[:-1], n // k, k)
    grouped, right = (part[..., : n // k * k].reshape(groups) for part in (votes, correct))
    voting = grouped >= 0
    same = (grouped[..., :, None] == grouped[..., None, :]) & voting[..., None, :] & voting[..., :, None]
    support = same.sum(-1)  # [..., n // k, k]: how many gave the same answer
    leading = voting & (support == support.amax(-1, keepdim=True))
    # Tied answers have equally many votes, so the share of votes is the share of answers.
    shares = (leading & right).sum(-1).double() / leading.sum(-1).clamp(min=1)
    return shares.mean(-1)


def area_under(ks: Sequence[int], curve: Tensor) -> Tensor:
    """Area under a curve over log2 k, divided by its width: between 0 and 1 for Pass@k.

    Trapezoids between the given k, on the axis on which Pass@k curves are drawn. NGRPO (arXiv 2509.18851) reports such
    an area; that text was not at hand, so its axis and range of k may differ.

    Args:
        ks: ascending, the first is 1.
        curve: the curve at each k; float [..., K].

    Returns:
        float [...]; with a single k the value there.
    """
    if len(ks) == 1:
        return curve[..., 0]
    at = torch.tensor(ks, dtype=curve.dtype).log2()
    return torch.trapezoid(curve, at) / (at[-1] - at[0])
