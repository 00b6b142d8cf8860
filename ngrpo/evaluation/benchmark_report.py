"""The report of a benchmark, computed from its stored answers alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.evaluation.answer_table import Answers
from ngrpo.evaluation.bootstrap import interval
from ngrpo.evaluation.estimators import area_under, majority_at_k, pass_at_k


@dataclass(frozen=True)
class Estimate:
    """A mean over problems with its 95 % interval.

    Attributes:
        value: the mean.
        low: lower bound.
        high: upper bound.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Report:
    """The figures of one benchmark.

    Attributes:
        problems: P, those that count.
        samples: n.
        unusable_references: problems excluded because no answer can be compared with their reference.
        metrics: the estimates by name, see `per_problem`.
    """

    problems: int
    samples: int
    unusable_references: int
    metrics: Mapping[str, Estimate]


def per_problem(answers: Answers, ks: Sequence[int]) -> dict[str, Tensor]:
    """Returns every metric of every problem; each figure of a report is the mean of one of them.

    ``mean@n``; ``pass@k``; ``maj@k`` for k > 1; ``pass_area`` under the Pass@k curve over log2 k; ``truncated``, the
    rate; ``length`` in tokens.

    Args:
        answers: of P problems, n each.
        ks: ascending from 1, at most n.

    Returns:
        float64 [P] each.

    Raises:
        ValueError: a k outside [1, n].
    """
    n, right = answers.samples, answers.correct.sum(-1)
    passes = {f"pass@{k}": pass_at_k(n, right, k) for k in ks}
    return {
        f"mean@{n}": answers.correct.double().mean(-1),
        **passes,
        **{f"maj@{k}": majority_at_k(answers.votes, answers.correct, k) for k in ks if k > 1},
        "pass_area": area_under(ks, torch.stack(list(passes.values()), dim=-1)),
        "truncated": answers.truncated.double().mean(-1),
        "length": answers.length.double().mean(-1),
    }


def report(answers: Answers, ks: Sequence[int], seed: int = 0) -> Report:
    """Returns the figures of one benchmark.

    Args:
        answers: all of them.
        ks: which k; ascending from 1, at most n.
        seed: of the bootstrap.

    Raises:
        SettingError: no problem has a usable reference.
    """
    if not answers.usable.any():
        raise SettingError(
            "benchmark: no reference of the data can be compared with an answer; check its answer_field."
        )
    usable = answers.chosen(answers.usable)
    return Report(
        problems=len(usable.problems),
        samples=answers.samples,
        unusable_references=int((~answers.usable).sum()),
        metrics=estimates(per_problem(usable, ks), seed),
    )


def estimates(values: Mapping[str, Tensor], seed: int = 0) -> dict[str, Estimate]:
    """Returns means over problems with intervals.

    Args:
        values: by name; float64 [P] each.
        seed: of the bootstrap.
    """
    table = torch.stack(list(values.values()), dim=-1)
    low, high = interval(table, seed)
    rows = zip(table.mean(0).tolist(), low.tolist(), high.tolist(), strict=True)
    return {name: Estimate(*row) for name, row in zip(values, rows, strict=True)}


def average(reports: Sequence[Report]) -> dict[str, float]:
    """Returns the mean over benchmarks, each weighing the same, of the metrics that all of them have."""
    common = [name for name in reports[0].metrics if all(name in one.metrics for one in reports)]
    return {name: sum(one.metrics[name].value for one in reports) / len(reports) for name in common}
