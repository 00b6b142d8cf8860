"""Credit by tree (TreePO): a response is compared with its like in every subtree that it is in."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.algo.credit import Credit, Credited, ScoredBatch
from ngrpo.algo.moments import whitened
from ngrpo.algo.segments import sequence_index
from ngrpo.errors import SettingError

_WEIGHTS = ("average", "size")


@dataclass(frozen=True)
class TreeCentred(Credit):
    """``A_i = mean over subtrees v of (R_i - mean of R over the leaves of v)``, v with i and with another leaf.

    (TreePO, arXiv 2508.17445, by its released code.) The group of all responses to a prompt is one of the v, the root.
    It counts also where it has a single leaf, whose A is then R. Made for ``algo/advantage=raw``; with another one R is
    what that makes of the rewards, and whatever it takes off a whole group changes nothing. Responses without tokens in
    common have the root alone, and their A is that of ``group_centred``. An unscored response is no leaf.

    All tokens of a response have its A. What a token that several responses have in common learns from is said by
    ``algo.shared_tokens``: with ``once`` the mean of their A, which is how much better its subtree does than what is
    around it, each token once; with ``each``, as in the released code, the sum of their A.

    Attributes:
        weights: of the subtrees in the mean: "average" (the released script) for equal ones, "size" (the default of the
            released function) for their leaves.
        whiten: subtract the mean and divide by the standard deviation over all tokens of all responses (unbiased
            variance, + 1e-8), so that long responses weigh more in both and the sum over the tokens is 0.
    """

    weights: str = "average"
    whiten: bool = True

    def __post_init__(self) -> None:
        if self.weights not in _WEIGHTS:
            raise SettingError(f"algo.credit.weights={self.weights} is not known; choose {' or '.join(_WEIGHTS)}.")

    def __call__(self, batch: ScoredBatch, advantages: Tensor, penalty: Tensor) -> Credited:
        """See `Credit`."""
        # In float64, as statistics of groups are: see `ngrpo.algo.advantage`.
        centred, total = (torch.zeros_like(advantages, dtype=torch.float64) for _ in range(2))
        for leaves, is_root in _subtrees(batch, advantages):
            if is_root or len(leaves) > 1:
                values, weight = advantages[leaves].double(), float(len(leaves)) if self.weights == "size" else 1.0
                centred[leaves] += weight * _centred(values)
                total[leaves] += weight
        # A response that is no leaf has no subtree either: 0 / 0.
        found = (centred / total).to(advantages.dtype)[sequence_index(batch.lengths)]
        return Credited((whitened(found, batch.reduce) if self.whiten else found)[None])


def _subtrees(batch: ScoredBatch, advantages: Tensor) -> Iterator[tuple[list[int], bool]]:
    """Yields the scored leaves of each subtree, and whether it is a root."""
    found: dict[tuple[int, int | None], list[int]] = defaultdict(list)
    paths = batch.paths or [None] * len(advantages)
    for leaf, (row, path) in enumerate(zip(batch.groups.rows.tolist(), paths, strict=True)):
        if not bool(advantages[leaf].isnan()):
            for node in (None, *(() if path is None else path.nodes)):
                found[row, node].append(leaf)
    return ((leaves, node is None) for (_, node), leaves in found.items())


def _centred(values: Tensor) -> Tensor:
    """``R - mean R``, R of a single leaf, exactly 0 where all are equal."""
    if len(values) == 1:
        return values
    return torch.zeros_like(values) if bool((values == values[0]).all()) else values - values.mean()
