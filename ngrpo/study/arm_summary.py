"""The summary of each arm: means over its seeds, and differences to the reference paired by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from ngrpo.evaluation.estimators import area_under, pass_at_k
from ngrpo.evaluation.ks import powers_of_two
from ngrpo.study.results import AnswerStatistics, Results, RunResult
from ngrpo.study.statistics import Mean, mean_of, paired

PER_PROBLEM = ("answers", "paths", "wrong_answers", "right_paths")
"""Diversity figures of `AnswerStatistics`, compared problem by problem."""

LATE = 5
"""Iterations at the end of a run over which its curves are averaged."""


@dataclass(frozen=True)
class ArmSummary:
    """An arm.

    Attributes:
        arm: its name.
        rate: its learning rate.
        seeds: finished runs.
        figures: by name, see `figures` and `late`.
        differences: to the reference over the seeds that both have; None for the reference itself.
    """

    arm: str
    rate: float
    seeds: int
    figures: Mapping[str, Mean]
    differences: Mapping[str, Mean] | None


def summaries(results: Results) -> list[ArmSummary]:
    """Returns the arms that have finished runs, in the study's order."""
    reference = str(results.study["reference"])
    first = _Runs.of(results, reference)
    return [
        _summary(arm, runs, None if arm == reference else first)
        for arm in results.study["arms"]
        if (runs := _Runs.of(results, arm)).by_seed
    ]


def pairs(results: Results) -> dict[tuple[str, str], dict[str, Mean]]:
    """Returns the differences of arms to the ones that they are ``against``, by both names."""
    named = [(arm, settings.get("against")) for arm, settings in results.study["arms"].items()]
    found = {
        (arm, other): _differences(_Runs.of(results, arm), _Runs.of(results, other))
        for arm, other in named
        if other is not None
    }
    return {pair: differences for pair, differences in found.items() if differences}


@dataclass(frozen=True)
class _Runs:
    """An arm's runs and their figures by seed."""

    by_seed: Mapping[int, RunResult]
    figures: Mapping[int, Mapping[str, float]]

    @classmethod
    def of(cls, results: Results, arm: str) -> "_Runs":
        runs = {run.seed: run for run in results.of_arm(arm)}
        return cls(runs, {seed: _all_figures(run, results.base) for seed, run in runs.items()})


def _summary(arm: str, runs: _Runs, reference: _Runs | None) -> ArmSummary:
    first, each = next(iter(runs.by_seed.values())), runs.figures.values()
    names = [name for name in runs.figures[first.seed] if all(name in one for one in each)]
    means = {name: mean_of([one[name] for one in each]) for name in names}
    differences = None if reference is None else _differences(runs, reference)
    return ArmSummary(arm, first.rate, len(each), means, differences)


def _differences(runs: _Runs, reference: _Runs) -> dict[str, Mean]:
    each, theirs = runs.figures, reference.figures
    names = {name for one in each.values() for name in one} - set(PER_PROBLEM)
    found: dict[str, Mean] = {}
    for name in sorted(names):
        own, other = ({s: one[name] for s, one in side.items() if name in one} for side in (each, theirs))
        if (difference := paired(own, other)) is not None:
            found[name] = difference
    common = [(run, reference.by_seed[seed]) for seed, run in runs.by_seed.items() if seed in reference.by_seed]
    for name in PER_PROBLEM:
        by_seed = [on_common_problems(own_run.test, their_run.test, name) for own_run, their_run in common]
        if values := [value for value in by_seed if value is not None]:
            found[name] = mean_of(values)
    return found


def figures(test: AnswerStatistics) -> dict[str, float]:
    """Returns a model's figures, each a mean over problems: ``mean@1``, ``pass@k``, ``maj@k``, diversity, length.

    ``solutions`` are the distinct right solutions of a problem among all of its samples.

    A diversity figure is the mean over the problems that have it.
    """
    n, right = test.samples, torch.tensor(test.right)
    ks = powers_of_two(n)
    passes = torch.stack([pass_at_k(n, right, k).mean() for k in ks])
    diverse = {name: _mean(getattr(test, name)) for name in PER_PROBLEM}
    return {
        "mean@1": float(right.double().mean()) / n,
        **{f"pass@{k}": float(value) for k, value in zip(ks, passes, strict=True)},
        "pass_area": float(area_under(ks, passes)),
        **{f"maj@{k}": value for k, value in test.majority.items()},
        **{name: value for name, value in diverse.items() if value is not None},
        **({} if test.solutions is None else {"solutions": sum(test.solutions) / len(test.solutions)}),
        "length": test.length,
        "truncated": test.truncated,
    }


def _all_figures(run: RunResult, base: AnswerStatistics | None) -> dict[str, float]:
    found = figures(run.test) | late(run) | {f"seconds/{name}": value for name, value in run.seconds.items()}
    if run.tokens is not None:
        found["generated_tokens"] = float(run.tokens)
    reached = None if base is None else newly_solved(run.test, base)
    return found if reached is None else found | {"newly_solved": reached}


def newly_solved(test: AnswerStatistics, base: AnswerStatistics) -> float | None:
    """Share of the problems without a right answer before training that have one now; None without such a problem."""
    never = [after > 0 for after, before in zip(test.right, base.right, strict=True) if before == 0]
    return sum(never) / len(never) if never else None


def late(run: RunResult) -> dict[str, float]:
    """Returns the mean of each curve over the last `LATE` iterations, and the median speed of generation."""
    ends = {f"late/{name}": sum(values[-LATE:]) / len(values[-LATE:]) for name, values in run.curves.items()}
    speeds = sorted(run.curves.get("rollout/tokens_per_s", ()))
    return ends | ({"tokens_per_s": speeds[len(speeds) // 2]} if speeds else {})


def on_common_problems(own: AnswerStatistics, other: AnswerStatistics, name: str) -> float | None:
    """Mean difference of a diversity figure over the problems for which both models have it.

    ``right_paths`` of both is then counted among equally many right samples of the same problems, and ``wrong_answers``
    among equally many wrong ones: a comparison at equal accuracy, however different the two models' accuracies are.

    Returns:
        None if there is no such problem.
    """
    pairs = zip(getattr(own, name), getattr(other, name), strict=True)
    differences = [mine - theirs for mine, theirs in pairs if mine is not None and theirs is not None]
    return sum(differences) / len(differences) if differences else None


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None
