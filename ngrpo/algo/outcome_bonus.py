"""Outcome bonuses: exploration by final answer, added to the advantages."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import Any

import torch
from torch import Tensor

from ngrpo.algo.groups import Groups
from ngrpo.algo.learned_state import LearnedState
from ngrpo.errors import SettingError

Answer = tuple[int, str]
"""The key of a problem, and a final answer to it."""
Gather = Callable[[Sequence[Answer]], list[Sequence[Answer]]]
"""Returns the answers of every rank on every rank (a collective)."""
_DIGITS = 28
"""Up to which whole numbers are written without an exponent; Python's, and that of the counts in checkpoints."""


class OutcomeBonus(LearnedState, ABC):
    """Numbers that are added to the advantages of responses, by their final answers.

    (arXiv 2509.06941, read in a summary.) To the advantages and not to the rewards: a group's standardisation would
    rescale them, and groups of equal rewards stay without a signal, which come alive here. With wrong answers alone the
    bonus is all there is, so that its weight should be small; the paper's was not read. Answers are equal if their
    texts or their numbers are; a response without an answer gets 0 and counts nowhere.
    """

    @abstractmethod
    def __call__(self, keys: Sequence[int], answers: Sequence[str | None], gather: Gather) -> Tensor:
        """Returns the bonuses of this rank's responses, S in all; float32 [S] (a collective).

        Called once an iteration, in training alone.

        Args:
            keys: of the problem that each response answers; responses with equal keys are a group.
            answers: final answers; None without one.
            gather: over the ranks.
        """


@dataclass
class RareAnswers(OutcomeBonus):
    """``b = min(1, 1 / sqrt(N))``, N the times that this problem has got this answer before this batch.

    By history: ucb. Less the mean over the group's answers it is ucb_mean, which sums to 0; less 0.5 it is ucb_con,
    which turns negative from the fifth time on. Whether N counts the present batch was not read.

    Attributes:
        coef: c, by which the bonus is multiplied.
        less: is subtracted from it.
        centred: subtract the group's mean too.
    """

    coef: float = 0.1
    less: float = 0.0
    centred: bool = False
    _visits: Counter[Answer] = field(default_factory=Counter, init=False, repr=False)

    def __post_init__(self) -> None:
        _check_coef(self.coef)

    def __call__(self, keys: Sequence[int], answers: Sequence[str | None], gather: Gather) -> Tensor:
        """See `OutcomeBonus`."""
        pairs = [None if a is None else (key, normal(a)) for key, a in zip(keys, answers, strict=True)]
        found = torch.tensor([torch.nan if pair is None else max(self._visits[pair], 1) ** -0.5 for pair in pairs])
        if self.centred:
            groups = Groups.of(keys)
            table = groups.table(found)
            found = groups.flat(table - table.nanmean(-1, keepdim=True))
        for visited in gather([pair for pair in pairs if pair is not None]):
            self._visits.update(visited)
        return self.coef * (found - self.less).nan_to_num(0.0)

    def state_dict(self) -> dict[str, Any]:
        """Holds the counts."""
        return {"visits": [(key, answer, count) for (key, answer), count in self._visits.items()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores them."""
        self._visits = Counter({(key, answer): count for key, answer, count in state["visits"]})


@dataclass
class DifferentAnswers(OutcomeBonus):
    """``b_i = - (1 / n) sum_{j != i} [a_i = a_j]``, over the n responses of the group: batch.

    Attributes:
        coef: c, by which the bonus is multiplied.
    """

    coef: float = 0.1

    def __post_init__(self) -> None:
        _check_coef(self.coef)

    def __call__(self, keys: Sequence[int], answers: Sequence[str | None], gather: Gather) -> Tensor:
        """See `OutcomeBonus`."""
        pairs = [None if a is None else (key, normal(a)) for key, a in zip(keys, answers, strict=True)]
        sizes, counts = Counter(keys), Counter(pairs)
        rows = zip(keys, pairs, strict=True)
        return -self.coef * torch.tensor([0.0 if p is None else (counts[p] - 1) / sizes[key] for key, p in rows])


def normal(answer: str) -> str:
    """Returns the form in which answers are compared: ``7.0`` and ``7`` are one, and no digit is rounded away."""
    text = answer.strip()
    try:
        number = Decimal(text)
    except InvalidOperation:
        return " ".join(answer.split())
    if not number.is_finite():
        return text
    shortest = number.normalize(_exact(len(text)))
    return str(_exact(len(shortest.as_tuple().digits)).add(shortest, 0))


def _exact(digits: int) -> Context:
    """Returns the arithmetic of numbers of any size: a response may well box ``1e9999999``, which Python's refuses."""
    return Context(prec=max(digits, _DIGITS), Emin=MIN_EMIN, Emax=MAX_EMAX)


def _check_coef(coef: float) -> None:
    if not coef >= 0:
        raise SettingError(f"algo.bonus.coef={coef} punishes exploration; choose 0 or more.")
