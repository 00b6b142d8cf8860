"""Selection inside a group: which of the responses to a prompt are learned from, by something else than the reward."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ngrpo.algo.learned_state import LearnedState
from ngrpo.algo.marks import keeps_k
from ngrpo.algo.quantile_sketch import QuantileSketch
from ngrpo.errors import SettingError


@keeps_k
def shortest(rewards: Tensor, lengths: Tensor, k: int = 2) -> Tensor:
    """Keeps the k shortest responses of each group (GFPO, arXiv 2508.09726, algorithm 1).

    Sample many, train on few: statistics, loss and counts are those of the kept responses. The paper divides by the
    population std and leaves the tokens of the others in its denominator; here the std is the advantage's own and they
    leave it, so that steps are larger by the ratio of the two counts. Responses at the length limit are the longest.
    The paper keeps at most 8 of 8 to 24. k is the same for all prompts; `MoreOfHardPrompts` has another one for each.

    Args:
        rewards: float [P, G]; NaN marks an unscored response, which is never kept.
        lengths: float [P, G], generated tokens.
        k: responses to keep; of equal ones the first, and all where there are fewer.

    Returns:
        The rewards, NaN where a response is not kept.
    """
    return _first(_length(rewards, lengths), rewards, k)


@keeps_k
def token_efficient(rewards: Tensor, lengths: Tensor, k: int = 2) -> Tensor:
    """Keeps the k responses of the largest reward per token (GFPO, arXiv 2508.09726); see `shortest`.

    With rewards of 0 and 1 a group that has k right answers keeps only those, and has no signal then.
    """
    return _first(_inefficiency(rewards, lengths), rewards, k)


class LearningSelection(LearnedState, ABC):
    """A selection that depends on the groups of the run so far."""

    @abstractmethod
    def __call__(self, rewards: Tensor, lengths: Tensor, observed: Tensor) -> Tensor:
        """Returns the rewards, NaN where a response is not kept; changes nothing.

        Args:
            rewards: see `shortest`; without truncated responses and less a KL, where the algorithm has it so.
            lengths: see `shortest`.
            observed: the rewards of the same responses as they were observed.
        """

    @abstractmethod
    def observe(self, rewards: Tensor) -> None:
        """Is told the rewards of an iteration before its selection, once, those of all ranks; float [P, G]."""


@dataclass
class MoreOfHardPrompts(LearningSelection):
    """Keeps more responses of hard prompts than of easy ones (GFPO with adaptive difficulty, arXiv 2508.09726).

        k = sizes[number of the three quartiles of all mean rewards so far that the prompt's own is above]

    The quartiles are read from a t-digest of the mean rewards of all prompts of the run, this iteration's included, and
    are the same on every rank; a mean on a quartile is below it. Until ``warmup`` prompts were seen, k is that of the
    hardest everywhere. A group whose responses are all unscored counts nowhere. Means are of the rewards themselves,
    before a KL is subtracted from them and truncated responses are left out.

    Attributes:
        sizes: k by quartile of the prompt's mean reward, the hardest first; at least 2 and below the group size. The
            paper: 8, 8, 6, 4 of 16.
        metric: what is kept: "shortest" or "token_efficient", see the functions of these names.
        warmup: prompts; the paper's number is not known to us.
    """

    sizes: Sequence[int] = (8, 8, 6, 4)
    metric: str = "shortest"
    warmup: int = 256
    seen: QuantileSketch = field(default_factory=QuantileSketch, init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.sizes) != len(_QUARTILES) + 1:
            raise SettingError(
                f"algo.within_group.sizes={list(self.sizes)} are {len(self.sizes)} numbers; give one a quartile, four."
            )
        if self.metric not in _METRICS:
            raise SettingError(f"algo.within_group.metric={self.metric} is not known; choose {' or '.join(_METRICS)}.")
        if self.warmup < 0:
            raise SettingError(f"algo.within_group.warmup={self.warmup} is negative; 0 uses the quartiles at once.")

    def __call__(self, rewards: Tensor, lengths: Tensor, observed: Tensor) -> Tensor:
        """See `LearningSelection`."""
        return _first(_METRICS[self.metric](rewards, lengths), rewards, self.kept(observed))

    def kept(self, observed: Tensor) -> Tensor:
        """Returns the responses to keep of each group; [P, G] -> int64 [P, 1]."""
        sizes = torch.tensor(list(self.sizes), device=observed.device)
        if not self.seen.centroids or self.seen.count < self.warmup:
            return sizes[:1].expand(len(observed), 1)
        bounds = torch.tensor([self.seen.quantile(share) for share in _QUARTILES], dtype=torch.float64)
        above = observed.double().nanmean(-1, keepdim=True) > bounds.to(observed.device) + _ROUNDING
        return sizes[above.sum(-1, keepdim=True)]

    def observe(self, rewards: Tensor) -> None:
        """See `LearningSelection`."""
        means = rewards.double().nanmean(-1)
        self.seen.add(means[~means.isnan()].tolist())

    def state_dict(self) -> dict[str, Any]:
        """Holds the sketch."""
        return {"centroids": [list(one) for one in self.seen.centroids]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores it."""
        self.seen = QuantileSketch((mean, count) for mean, count in state["centroids"])


_QUARTILES = (0.25, 0.5, 0.75)
_ROUNDING = 1e-9
"""Of means that are merged; rewards that differ by less are equal."""


def _length(rewards: Tensor, lengths: Tensor) -> Tensor:
    return lengths


def _inefficiency(rewards: Tensor, lengths: Tensor) -> Tensor:
    return -rewards / lengths


_METRICS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {"shortest": _length, "token_efficient": _inefficiency}


def _first(metric: Tensor, rewards: Tensor, k: int | Tensor) -> Tensor:
    order = metric.masked_fill(rewards.isnan(), math.inf).argsort(dim=-1, stable=True)
    return rewards.masked_fill(order.argsort(dim=-1) >= k, torch.nan)
