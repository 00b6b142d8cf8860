"""Paired differences between runs: on the same problems, with the same seeds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.evaluation.benchmark_report import Estimate, estimates
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.report.compared_runs import Arm, ComparedRun
from ngrpo.report.curves import benchmarks, pass_curve
from ngrpo.report.intervals import passes_per_problem

_LAST = 4
"""Training problems are compared over the last quarter of the shortest run."""


@dataclass(frozen=True)
class Row:
    """One metric of A arms.

    Attributes:
        metric: its name.
        values: the mean over problems of each arm; A.
        differences: those of the second and further arms to the first; A - 1. Paired: intervals are those of the mean
            of the problems' differences.
    """

    metric: str
    values: Sequence[float]
    differences: Sequence[Estimate]


@dataclass(frozen=True)
class Pairing:
    """One set of problems.

    Attributes:
        title: which problems, and when.
        rows: the metrics.
    """

    title: str
    rows: Sequence[Row]


def pairings(arms: Sequence[Arm]) -> list[Pairing]:
    """Returns the paired differences between two or more arms, on all problems that they have in common.

    Where arms have seeds in common, only runs with these count; of an arm with several seeds a problem's value is the
    mean over them. Intervals are over problems: they tell nothing of how other seeds would turn out.
    """
    matched = [_matched(arm, arms) for arm in arms]
    return [*_held_out(matched), *_trained(matched)]


def _matched(arm: Arm, arms: Sequence[Arm]) -> list[ComparedRun]:
    common = set.intersection(*({run.seed for run in one.runs.values()} for one in arms))
    return [run for run in arm.runs.values() if not common or run.seed in common]


def _held_out(arms: Sequence[Sequence[ComparedRun]]) -> Iterator[Pairing]:
    runs = [run for arm in arms for run in arm]
    common = set.intersection(*({one.iteration for one in run.evaluations} for run in runs))
    if not common or len({run.description.held_out for run in runs if run.description is not None}) > 1:
        return
    done = max(common)
    ends = [[_evaluation(run, done) for run in arm] for arm in arms]
    every = [end for arm in ends for end in arm]
    for prefix, label in benchmarks(every).items():
        problems = {len(end.rates[prefix]) for end in every}
        if len(problems) > 1 or problems == {0}:
            continue
        curves = [pass_curve(end.metrics, prefix) for end in every]
        ks = [k for k in curves[0] if all(k in curve for curve in curves)]
        values = [_mean([passes_per_problem(end, prefix, ks) for end in arm]) for arm in ends]
        named = [{"Mean@1" if k == 1 else f"Pass@{k}": column for k, column in arm.items()} for arm in values]
        rows = _rows(named)
        if rows:
            yield Pairing(f"{label}, after {done} iterations, {problems.pop()} problems", rows)


def _evaluation(run: ComparedRun, done: int) -> EvaluationResult:
    return next(one for one in run.evaluations if one.iteration == done)


def _mean(columns: Sequence[Mapping[int, Tensor]]) -> dict[int, Tensor]:
    return {k: torch.stack([one[k] for one in columns]).mean(0) for k in columns[0] if all(k in o for o in columns)}


def _trained(arms: Sequence[Sequence[ComparedRun]]) -> Iterator[Pairing]:
    runs = [run for arm in arms for run in arm]
    identities = {None if run.description is None else run.description.data_identity for run in runs}
    shortest = min(len(run.iterations) for run in runs)
    if identities == {None} or len(identities) > 1 or not shortest:
        return
    first = shortest - max(1, shortest // _LAST)
    rates = [[_solved(run, first, shortest) for run in arm] for arm in arms]
    common = sorted(set.intersection(*(set(found) for arm in rates for found in arm)))
    if common:
        values = [{1: torch.stack([_column(found, common) for found in arm]).mean(0)} for arm in rates]
        rows = _rows([{"share of right answers": arm[1]} for arm in values])
        yield Pairing(f"training, iterations {first + 1} to {shortest}, {len(common)} problems that all met", rows)


def _solved(run: ComparedRun, first: int, end: int) -> dict[int, float]:
    """Returns the share of right answers to each problem met between two iterations."""
    solved: dict[int, int] = {}
    tried: dict[int, int] = {}
    for record in run.iterations:
        for problem in record.problems if first <= record.iteration < end else []:
            solved[problem.key] = solved.get(problem.key, 0) + problem.solved
            tried[problem.key] = tried.get(problem.key, 0) + problem.tried
    return {key: solved[key] / tried[key] for key in solved}


def _column(found: Mapping[int, float], keys: Sequence[int]) -> Tensor:
    return torch.tensor([found[key] for key in keys], dtype=torch.float64)


def _rows(values: Sequence[Mapping[str, Tensor]]) -> list[Row]:
    if not values[0]:
        return []
    differences = [estimates({name: arm[name] - values[0][name] for name in arm}) for arm in values[1:]]
    return [
        Row(name, [float(arm[name].mean()) for arm in values], [one[name] for one in differences]) for name in values[0]
    ]
