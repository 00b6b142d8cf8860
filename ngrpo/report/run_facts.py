"""The top of the page: the run's figures, and what the run was."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ngrpo.errors import SettingError
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.report.curves import benchmarks, pass_curve
from ngrpo.report.run_description import RunDescription
from ngrpo.report.run_records import IterationRecord
from ngrpo.utils.input_files import read_json
from ngrpo.utils.numbers import about, fixed

_COMMIT_DIGITS = 12
_ARROW = " \u2192 "


@dataclass(frozen=True)
class RunSummary:
    """What a run's ``summary.json`` tells; it is written at evaluations and at the end.

    Attributes:
        methods: names of the chosen methods.
        seed: the run's; None where it is not told, like the following.
        commit: of the code.
        wall_s: seconds that the run took so far.
        tokens: that were generated in training.
        versions: of packages.
    """

    methods: Mapping[str, str]
    seed: int | None
    commit: str | None
    wall_s: float | None
    tokens: int | None
    versions: Mapping[str, str]


def read_summary(run_dir: Path) -> RunSummary:
    """Reads ``summary.json``; without the file everything is unknown.

    Raises:
        SettingError: it is something else.
    """
    path = run_dir / "summary.json"
    found = read_json(path, "the summary") if path.exists() else {}
    numbers = [found.get(name, 0) for name in ("wall_s", "tokens_generated")] if isinstance(found, dict) else [None]
    groups = [found.get(name, {}) for name in ("methods", "versions")] if isinstance(found, dict) else []
    if not all(type(value) in (int, float) for value in numbers) or not all(
        isinstance(group, dict) for group in groups
    ):
        raise SettingError(f"{path} is no summary of a run; take it out, and the page is made without it.")
    return RunSummary(
        methods=found.get("methods", {}),
        seed=found.get("seed"),
        commit=found.get("git_commit"),
        wall_s=found.get("wall_s"),
        tokens=found.get("tokens_generated"),
        versions=found.get("versions", {}),
    )


def _is_summary(found: Any) -> bool:
    if not isinstance(found, dict):
        return False
    numbers = [found.get(name, 0) for name in ("wall_s", "tokens_generated")]
    groups = [found.get(name, {}) for name in ("methods", "versions")]
    return all(type(n) in (int, float) for n in numbers) and all(isinstance(group, dict) for group in groups)


def title(run_dir: Path, summary: RunSummary, description: RunDescription | None) -> str:
    """Returns the run's methods, else its folder's name."""
    methods = summary.methods if description is None else description.methods
    return " ".join(f"{group}={name}" for group, name in methods.items()) or run_dir.name


def tiles(
    summary: RunSummary,
    planned: int | None,
    iterations: Sequence[IterationRecord],
    evaluations: Sequence[EvaluationResult],
) -> list[tuple[str, str]]:
    """Returns label and figure of what is read first."""
    done = len(iterations)
    made = [("iterations", f"{done} of {planned}" if planned is not None and planned > done else str(done))]
    if summary.wall_s is not None:
        made.append(("time", about(summary.wall_s)))
    if summary.tokens is not None:
        made.append(("tokens generated", f"{summary.tokens:,}"))
    if len(evaluations) < 2 and iterations and "train/reward" in iterations[-1].metrics:
        made.append(("reward, last iteration", fixed(iterations[-1].metrics["train/reward"])))
    for prefix, label in benchmarks(evaluations).items():
        curve = pass_curve(evaluations[-1].metrics, prefix)
        for name in ["mean@1", *(f"pass@{k}" for k in list(curve)[-1:] if k > 1)]:
            ends = [e.metrics[prefix + name] for e in (evaluations[0], evaluations[-1]) if prefix + name in e.metrics]
            shown = ends if len(evaluations) > 1 else ends[:1]
            if shown:
                made.append((f"{name.capitalize()}, {label}", _ARROW.join(map(fixed, shown))))
    return made


def facts(run_dir: Path, summary: RunSummary, description: RunDescription | None) -> list[tuple[str, str]]:
    """Returns label and text of what the run was; what nobody recorded is left out."""
    told: list[tuple[str, Any]] = []
    if description is not None:
        told = [
            ("model", description.model),
            ("training data", description.data),
            ("held out", description.held_out or "nothing"),
            ("strategy", description.strategy),
            ("engine", description.engine),
            ("planned", f"{description.iterations} iterations"),
            ("started", moment(description.started)),
            *(("resumed", f"after {r.iteration} iterations, {moment(r.time)}") for r in description.resumes),
            ("hardware", description.hardware),
        ]
    seed, commit, versions = (
        (summary.seed, summary.commit, summary.versions)
        if description is None
        else (description.seed, description.commit, description.versions)
    )
    software = ", ".join(f"{name} {version}" for name, version in versions.items())
    told += [
        ("seed", seed),
        ("commit", short_commit(commit)),
        ("software", software or None),
        ("folder", run_dir.resolve()),
    ]
    return [(label, str(text)) for label, text in told if text is not None]


def short_commit(commit: str | None) -> str | None:
    """Returns a commit in the usual few digits, and whether the code was changed since; None where there is none."""
    if commit is None:
        return None
    return commit[:_COMMIT_DIGITS] + (", with uncommitted changes" if commit.endswith("+") else "")


def moment(iso: str) -> str:
    """Returns a time of ISO 8601 as people write it: 2026-11-29 13:05 UTC; what is none, as it is."""
    try:
        return f"{datetime.fromisoformat(iso):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return iso
