"""Pass@k and mean@k as torchmetrics, right under several processes because their states are sums."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from ngrpo.evaluation.estimators import pass_at_k


class PassAtK(Metric):
    """Unbiased pass@k for several k, averaged over problems.

    Args:
        ks: the values of k.
        **kwargs: for `torchmetrics.Metric`.

    Raises:
        ValueError: ``ks`` is empty or holds a k below 1.
    """

    full_state_update = False
    higher_is_better = True
    total: Tensor
    problems: Tensor

    def __init__(self, ks: Sequence[int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not ks or min(ks) < 1:
            raise ValueError(f"ks must be one or more integers >= 1, got {list(ks)}")
        self.ks = tuple(ks)
        self.add_state("total", torch.zeros(len(self.ks), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("problems", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, correct: Tensor) -> None:
        """Adds problems.

        Args:
            correct: bool [P, n], all samples of P whole problems.

        Raises:
            ValueError: n is smaller than one of the ks.
        """
        problems, n = correct.shape
        right = correct.sum(-1)
        self.total += torch.stack([pass_at_k(n, right, k).sum() for k in self.ks])
        self.problems += problems

    def compute(self) -> dict[str, Tensor]:
        """``{"pass@k": float64 scalar}`` for each k; NaN before any problem was added."""
        return {f"pass@{k}": total / self.problems for k, total in zip(self.ks, self.total, strict=True)}


class MeanAtK(Metric):
    """Mean over a problem's samples, averaged over problems, of a reward or of correctness.

    Unscored samples (NaN) are excluded, and so is a problem of which no sample was scored.

    Args:
        **kwargs: for `torchmetrics.Metric`.
    """

    full_state_update = False
    higher_is_better = True
    total: Tensor
    problems: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("total", torch.tensor(0.0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("problems", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, values: Tensor) -> None:
        """Adds problems; ``values``: float or bool [P, n], all samples of P whole problems."""
        means = values.double().nanmean(-1)
        self.total += means.nansum()
        self.problems += (~means.isnan()).sum()

    def compute(self) -> Tensor:
        """The mean, a float64 scalar; NaN before any problem was added."""
        return self.total / self.problems
