"""Paired differences between evaluations of the same problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.evaluation.answer_store import stored_benchmarks
from ngrpo.evaluation.answer_table import Answers, answers_of
from ngrpo.evaluation.benchmark_report import Estimate, estimates, per_problem
from ngrpo.evaluation.ks import powers_of_two


@dataclass(frozen=True)
class Compared:
    """One metric of R runs on the same problems.

    Attributes:
        values: the mean over problems of each run; R.
        differences: those of the second and further runs to the first; R - 1. Paired: the interval is that of the mean
            of the problems' differences, in which what makes a problem hard for all runs cancels.
    """

    values: Sequence[float]
    differences: Sequence[Estimate]


@dataclass(frozen=True)
class Comparison:
    """One benchmark.

    Attributes:
        problems: those that all runs answered, with usable references.
        metrics: by name: ``mean`` and those of `per_problem` for the k that all runs have samples for.
    """

    problems: int
    metrics: Mapping[str, Compared]


def compare_runs(runs: Sequence[Path], seed: int = 0) -> dict[str, Comparison]:
    """Compares evaluations on the benchmarks that all of them have.

    Args:
        runs: folders of evaluations, two or more; the first is what the others are compared with.
        seed: of the bootstrap.

    Raises:
        SettingError: a folder holds no answers, or the runs have no benchmark or no problem in common.
    """
    stores = [stored_benchmarks(run) for run in runs]
    common = [name for name in stores[0] if all(name in store for store in stores)]
    if not common:
        raise SettingError(
            f"{', '.join(map(str, runs))} have no benchmark in common; evaluate the same ones with each model."
        )
    return {name: compare(name, [store[name].table() for store in stores], seed) for name in common}


def compare(name: str, tables: Sequence[pa.Table], seed: int = 0) -> Comparison:
    """Compares the stored answers of several runs to one benchmark (see `compare_runs`)."""
    if not all(table.num_rows for table in tables):
        raise SettingError(f"{name} has no answers yet in one of the runs; finish the evaluations first.")
    asked = [dict(zip(table["problem"].to_pylist(), _asked(table), strict=True)) for table in tables]
    common = sorted(set.intersection(*(set(one) for one in asked)))
    if any(one[key] != asked[0][key] for one in asked for key in common):
        raise SettingError(
            f"{name} is not the same data in all runs: equal numbers have different problems; evaluate from one source."
        )
    runs = _same_problems([answers_of(table) for table in tables], torch.tensor(common))
    if not len(runs[0].problems):
        raise SettingError(f"{name} has no usable problem that all runs have answered; finish the evaluations first.")
    values = [_figures(run, powers_of_two(min(run.samples for run in runs))) for run in runs]
    differences = [estimates({m: one[m] - values[0][m] for m in one}, seed) for one in values[1:]]
    return Comparison(
        problems=len(runs[0].problems),
        metrics={
            metric: Compared([float(one[metric].mean()) for one in values], [one[metric] for one in differences])
            for metric in values[0]
        },
    )


def _asked(table: pa.Table) -> list[tuple[str, str]]:
    return list(zip(table["question"].to_pylist(), table["reference"].to_pylist(), strict=True))


def _same_problems(runs: Sequence[Answers], common: Tensor) -> list[Answers]:
    """Keeps the problems ``common`` (int64 [Q]) that are usable in every run, in one order."""
    runs = [run.chosen(torch.isin(run.problems, common)) for run in runs]
    usable = torch.stack([run.usable for run in runs]).all(0)
    return [run.chosen(usable) for run in runs]


def _figures(run: Answers, ks: Sequence[int]) -> dict[str, Tensor]:
    """Returns the metrics a problem under names that do not depend on the number of samples."""
    figures = per_problem(run, ks)
    return {"mean": figures.pop(f"mean@{run.samples}"), **figures}
