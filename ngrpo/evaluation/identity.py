"""The identity of what is evaluated, by which stored answers and evaluations of a run are matched."""

import hashlib
import re
from collections.abc import Mapping, Sequence

from ngrpo.compat.attributes import serve_old_names
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.types.problems import Prompt

serve_old_names(__name__)


_PLACE = re.compile(r" at 0x[0-9a-fA-F]+")
"""In the ``repr`` of objects whose class has none: another one in every process."""


def evaluation_digest(evaluator: object, prompts: Mapping[str, Sequence[Prompt]]) -> str:
    """Returns a digest of an evaluator's settings, as its ``repr`` has them, and the prompts of each benchmark."""
    asked = {name: prompts_digest(own) for name, own in prompts.items()}
    settings = _PLACE.sub("", repr(evaluator))
    return hashlib.sha256(f"{settings}/{asked}".encode()).hexdigest()[:16]


def comparable(evaluations: Sequence[EvaluationResult]) -> list[EvaluationResult]:
    """Returns the last of a run's evaluations and those that were made of the same, in order.

    A resumed run may evaluate with more samples, on fewer problems or at another temperature: a difference to what was
    found before says nothing of the policy. Of those that do not say, the metrics and the numbers of problems are held
    together.
    """
    return [one for one in evaluations if _alike(one, evaluations[-1])]


def _alike(one: EvaluationResult, last: EvaluationResult) -> bool:
    if one.made_of or not last.made_of:
        return one.made_of == last.made_of
    return _shape(one) == _shape(last)


def _shape(one: EvaluationResult) -> tuple[set[str], dict[str, int]]:
    return set(one.metrics), {benchmark: len(rates) for benchmark, rates in one.rates.items()}


def prompts_digest(prompts: Sequence[Prompt]) -> str:
    """Returns a digest of the problems' numbers, token ids and references, in their order."""
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(f"{prompt.problem.key}/{prompt.ids}/{prompt.problem.answer}/".encode())
    return digest.hexdigest()[:16]
