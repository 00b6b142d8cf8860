"""``ngrpo.evaluate``: figures of a model on benchmarks."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngrpo.entrypoints.composition import composed
from ngrpo.entrypoints.evaluate import evaluate as run_evaluation
from ngrpo.entrypoints.python_api.arguments import folder_of, words_given
from ngrpo.entrypoints.python_api.session import logging_to, session
from ngrpo.entrypoints.refused_run import removing_unused
from ngrpo.evaluation.benchmark_report import Report


@dataclass(frozen=True)
class EvaluationSummary:
    """What an evaluation found, and where its answers lie.

    Attributes:
        reports: figures by benchmark: ``reports["math500"].metrics["pass@4"].value``, with the bounds ``low`` and
            ``high`` of its 95 % interval over problems.
        folder: the answers and ``evaluation.json``, as ``ngrpo compare`` takes them.
    """

    reports: Mapping[str, Report]
    folder: Path


def evaluate(
    *overrides: str, config_dir: Path | str | None = None, verbose: bool = False, **settings: Any
) -> EvaluationSummary:
    """Evaluates a model as ``ngrpo evaluate`` does with the same settings.

    Args:
        overrides: settings of conf/evaluate.yaml, such as ``"benchmark=[math500]"``, ``"n=16"``.
        config_dir: a folder of yaml files and modules of yours.
        verbose: shows progress and figures, as the command does.
        settings: settings by group: ``model={"path": "demo"}``, ``n=8``.

    Raises:
        SettingError: a setting cannot work.
    """
    with session(verbose):
        composition = composed("evaluate", words_given(settings, overrides), folder_of(config_dir))
        out = composition.run_dir
        out.mkdir(parents=True, exist_ok=True)
        with composition.current(), removing_unused(out), logging_to(out / "evaluate.log"):
            return EvaluationSummary(run_evaluation(composition.config, out), out)
