"""The reward of a response as a weighted sum: correctness, and whatever terms the run adds to it."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ngrpo.algo.best import Bounds, sum_of_bounds
from ngrpo.errors import RunError, SettingError
from ngrpo.rewards.terms.calls import NONE_ALONE, at
from ngrpo.rewards.terms.results import WrongResult, numbers
from ngrpo.rewards.terms.reward_warnings import RewardWarnings
from ngrpo.types.problems import Problem
from ngrpo.types.rollouts import Rollout
from ngrpo.types.scores import Score, Verdict
from ngrpo.utils.remote_error import log_traceback, origin

log = logging.getLogger(__name__)

CORRECTNESS = "correctness"
"""Name of the first term, the verifier's; see `ngrpo.rewards.math.MathReward` for its values."""

LEFT_OUT = "left_out"
"""Name of the fraction of responses without a usable reward, for whatever reason."""

_RESERVED = {CORRECTNESS, LEFT_OUT, *Verdict}


@dataclass(frozen=True)
class Responses:
    """What a term sees: N = P * G responses, the G of a prompt side by side.

    Attributes:
        problems: the problem that each answers; N.
        rollouts: tokens, lengths, why they ended; N.
        texts: as the verifier reads them: special tokens kept, and a reasoning marker that the prompt ends with put
            in front; N.
        scores: the verifier's; N.
        completions: the same without the token that ended them and without such a marker; N, None where not known.
    """

    problems: Sequence[Problem]
    rollouts: Sequence[Rollout]
    texts: Sequence[str]
    scores: Sequence[Score]
    completions: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def copied(self) -> "Responses":
        """Returns the same in lists of their own, which a term may change."""
        completions = None if self.completions is None else list(self.completions)
        return Responses(list(self.problems), list(self.rollouts), list(self.texts), list(self.scores), completions)

    def only(self, index: int) -> "Responses":
        """Returns one of them."""
        at = slice(index, index + 1)
        completions = None if self.completions is None else self.completions[at]
        return Responses(self.problems[at], self.rollouts[at], self.texts[at], self.scores[at], completions)


Term = Callable[[Responses], Tensor]
"""Returns numbers [N]; NaN excludes a response from the loss; with an infinite value its optimiser step is skipped.

An attribute ``bounds``, its smallest and largest value, lets ``algo.advantage.best`` be derived."""


@runtime_checkable
class Stateful(Protocol):
    """A reward or term whose state belongs into checkpoints: numbers, text, tensors, lists and dictionaries.

    Every rank has an object of its own, whose state is saved and restored apart from the others'.
    """

    def state_dict(self) -> dict[str, Any]:
        """Returns the state."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores it."""


@dataclass(frozen=True)
class WeightedTerm:
    """One summand (``reward_terms.<name>`` in the configuration).

    Attributes:
        name: its tag is ``reward/<name>``.
        weight: factor on its values.
        function: the term.
    """

    name: str
    weight: float
    function: Term

    def __post_init__(self) -> None:
        if self.name in _RESERVED:
            raise SettingError(
                f"reward_terms.{self.name} has the name of a figure that is logged already (reward/{self.name}); "
                "choose another."
            )
        if not math.isfinite(self.weight):
            raise SettingError(f"reward_terms.{self.name}.weight={self.weight} weighs nothing; set a finite number.")

    def weighted(self, responses: Responses) -> Tensor:
        """Returns ``weight`` times the term's values; float64 [N].

        Raises:
            RunError: the term raised, in which case the message names the first response that it also fails on alone;
                or its values are not one number a response.
        """
        try:
            values = torch.tensor(numbers(self.function(responses.copied()), len(responses)), dtype=torch.float64)
        except (SettingError, RunError):
            raise
        except WrongResult as wrong:
            raise RunError(f"reward_terms.{self.name} {wrong}; let it return one for each.") from wrong
        except Exception as error:
            log_traceback(log, error)
            raise RunError(
                f"reward_terms.{self.name} raised {error!r}{origin(error)}{self._on(responses)}; fix it and resume with"
                " ckpt=latest."
            ) from error
        return self.weight * values

    def _on(self, responses: Responses) -> str:
        for index in range(len(responses)):
            try:
                self.function(responses.only(index))
            except Exception:
                return _at(responses, index)
        return NONE_ALONE


def _rewards_of(scores: Sequence[Score]) -> Tensor:
    """Returns the verifier's rewards; 0 where it has said by its verdict why there is none; float64 [N]."""
    excused = Verdict.UNPARSABLE_REFERENCE
    return torch.tensor([0.0 if score.status is excused else score.reward for score in scores], dtype=torch.float64)


def _at(responses: Responses, index: int) -> str:
    return at(index, responses.problems[index].key, responses.texts[index])


def bounds_of(reward: object, terms: Sequence[WeightedTerm]) -> Bounds | None:
    """Returns the smallest and the largest reward that a run can give; None if the reward or a term does not say."""
    own = getattr(reward, "bounds", None)
    functions = [term.function.func if isinstance(term.function, partial) else term.function for term in terms]
    declared = [bounds for function in functions if (bounds := getattr(function, "bounds", None)) is not None]
    if own is None or len(declared) < len(terms):
        return None
    return sum_of_bounds(own, [(term.weight, bounds) for term, bounds in zip(terms, declared, strict=True)])


class RewardTerms:
    """The terms beside correctness, in the order of the configuration.

    What nothing is learned from, or something else than it says, is warned of (`ngrpo.rewards.terms.reward_warnings`).

    Args:
        terms: the summands.
    """

    def __init__(self, terms: Sequence[WeightedTerm]) -> None:
        self.terms = tuple(terms)
        self._warn = RewardWarnings()

    def __call__(self, responses: Responses) -> dict[str, Tensor]:
        """Returns each term's weighted values by name; float64 [N]."""
        values_by_name = self._values(responses)
        summands = {f"reward_terms.{name}": values for name, values in values_by_name.items()}
        keys = [problem.key for problem in responses.problems]
        self._warn({"reward": _rewards_of(responses.scores)} | summands, keys, partial(_at, responses))
        return values_by_name

    def _values(self, responses: Responses) -> dict[str, Tensor]:
        """Calls all terms; those in processes of their own at the same time, the others one after the other."""
        isolated = [term for term in self.terms if hasattr(term.function, "isolated")]
        with ThreadPoolExecutor(max(1, len(isolated))) as threads:
            started = {term.name: threads.submit(term.weighted, responses) for term in isolated}
            return {
                term.name: started[term.name].result() if term.name in started else term.weighted(responses)
                for term in self.terms
            }

    def state_dict(self) -> dict[str, Any]:
        """Holds the state of the stateful terms by name."""
        return {name: term.state_dict() for name, term in self._stateful().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores it; a term that the interrupted run did not have starts afresh."""
        for name, term in self._stateful().items():
            if name in state:
                term.load_state_dict(state[name])

    def _stateful(self) -> dict[str, Stateful]:
        functions: dict[str, object] = {term.name: term.function for term in self.terms}
        return {name: function for name, function in functions.items() if isinstance(function, Stateful)}
