"""The runs of a comparison: what each is called, and which differ in the seed alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ngrpo.errors import SettingError
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.report.run_description import RunDescription
from ngrpo.report.run_facts import read_summary
from ngrpo.report.run_records import IterationRecord
from ngrpo.report.run_store import RunStore

_SEED = "seed"
_LONGEST = 60
"""Characters of a label: a longer one gives way to the folder's name."""


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison.

    Attributes:
        run_dir: its folder.
        settings: the chosen methods and the settings that differ from the defaults, by name; the seed is not among
            them.
        seed: the run's; None where nobody recorded it.
        description: what it was; None likewise.
        iterations: its iterations in order.
        evaluations: its evaluations in order.
    """

    run_dir: Path
    settings: Mapping[str, str]
    seed: int | None
    description: RunDescription | None
    iterations: Sequence[IterationRecord]
    evaluations: Sequence[EvaluationResult]


@dataclass(frozen=True)
class Arm:
    """Runs that differ in the seed alone.

    Attributes:
        label: what sets them apart from the other arms.
        runs: one or more, with their own labels.
    """

    label: str
    runs: Mapping[str, ComparedRun]


def read_run(run_dir: Path) -> ComparedRun:
    """Reads a run's record.

    Raises:
        SettingError: the folder has none, or it is damaged.
    """
    store = RunStore(run_dir)
    if not store.exists:
        raise SettingError(f"{run_dir} holds no record of a run; give a run's folder (callbacks.run_record writes it).")
    description, summary = store.description(), read_summary(run_dir)
    methods, changed = (summary.methods, {}) if description is None else (description.methods, description.changed)
    return ComparedRun(
        run_dir=run_dir,
        settings={name: str(value) for name, value in {**methods, **changed}.items() if name != _SEED},
        seed=summary.seed if description is None else description.seed,
        description=description,
        iterations=store.iterations(),
        evaluations=store.evaluations(),
    )


def arms(runs: Sequence[ComparedRun]) -> list[Arm]:
    """Returns the runs, those together that differ in the seed alone; each arm and each run has a label of its own.

    A run without a seed, or with one that its arm has already, is an arm of its own.
    """
    groups: list[list[ComparedRun]] = []
    for run in runs:
        fitting = (g for g in groups if g[0].settings == run.settings and not {None, run.seed} & {r.seed for r in g})
        found = next(fitting, None) if run.seed is not None else None
        if found is None:
            groups.append([run])
        else:
            found.append(run)
    labels = _labels([group[0] for group in groups])
    return [Arm(label, _by_label(label, group)) for label, group in zip(labels, groups, strict=True)]


def _by_label(label: str, group: Sequence[ComparedRun]) -> dict[str, ComparedRun]:
    return {label if len(group) == 1 else f"{label}, seed {run.seed}": run for run in group}


def _labels(runs: Sequence[ComparedRun]) -> list[str]:
    """Returns the settings in which each differs from the others; the folders' names where that tells nothing."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    differing = [name for name in names if len({run.settings.get(name) for run in runs}) > 1]
    by_settings = [", ".join(f"{n}={run.settings[n]}" for n in differing if n in run.settings) for run in runs]
    by_name = [run.run_dir.resolve().name for run in runs]
    by_path = [str(run.run_dir) for run in runs]
    return next((labels for labels in (by_settings, by_name) if _distinct(labels)), by_path)


def _distinct(labels: Sequence[str]) -> bool:
    return len(set(labels)) == len(labels) and all(0 < len(label) <= _LONGEST for label in labels)
