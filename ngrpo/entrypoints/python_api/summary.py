"""The summary of a training run, read from its folder."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ngrpo.callbacks.export import FOLDER as MODEL
from ngrpo.checkpoint.folders import complete_checkpoints
from ngrpo.report.page import PAGE
from ngrpo.report.run_store import RunStore

LOG = "train.log"


@dataclass(frozen=True)
class Summary:
    """What a training run was, what it reached, and where it lies.

    Attributes:
        iterations: finished ones.
        metrics: of each iteration from the first on, by TensorBoard tag, such as ``train/reward``.
        evaluation: on held-out problems, by the iterations before it (0 is the untrained model) and metric, such as
            ``pass@4``.
        methods: the chosen presets, such as ``{"algo": "gspo", "exploration": "neighbor"}``.
        run_dir: the run's folder.
        checkpoint: the last complete one, from which ``ckpt=`` resumes; None without one.
        model: the trained policy as a Hugging Face folder; None where the run was stopped early.
        report: the report page; None without one.
        log: the log.
        stopped: why the run ended before its last iteration; None if it did not.
    """

    iterations: int
    metrics: tuple[Mapping[str, float], ...]
    evaluation: Mapping[int, Mapping[str, float]]
    methods: Mapping[str, str]
    run_dir: Path
    checkpoint: Path | None
    model: Path | None
    report: Path | None
    log: Path
    stopped: str | None = None

    def curve(self, metric: str) -> list[float]:
        """Returns a metric of every iteration, NaN where it was not measured.

        Raises:
            KeyError: no iteration has it.
        """
        if not any(metric in one for one in self.metrics):
            known = sorted({name for one in self.metrics for name in one})
            raise KeyError(f"{metric} is no metric of this run; it has {', '.join(known)}")
        return [one.get(metric, math.nan) for one in self.metrics]


def summary_of(run_dir: Path, methods: Mapping[str, str], stopped: str | None = None) -> Summary:
    """Reads the folder of a run; what a callback writes that was left out is empty.

    Args:
        run_dir: the folder.
        methods: see `Summary`.
        stopped: see `Summary`.
    """
    store, checkpoints = RunStore(run_dir), complete_checkpoints(run_dir)
    iterations = store.iterations()
    return Summary(
        iterations=iterations[-1].iteration + 1 if iterations else 0,
        metrics=tuple(record.metrics for record in iterations),
        evaluation={record.iteration: record.metrics for record in store.evaluations()},
        methods=methods,
        run_dir=run_dir,
        checkpoint=checkpoints[-1] if checkpoints else None,
        model=_there(run_dir / MODEL),
        report=_there(run_dir / PAGE),
        log=run_dir / LOG,
        stopped=stopped,
    )


def _there(path: Path) -> Path | None:
    return path if path.exists() else None
