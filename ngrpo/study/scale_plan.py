"""The plan of a study on a known card: hours, memory and cost from measured throughput, and the jobs for SLURM."""

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from ngrpo.planning.cards import Card
from ngrpo.planning.memory_plan import plan_memory
from ngrpo.planning.run_settings import RunSettings
from ngrpo.planning.time_plan import plan_time
from ngrpo.study.definition import ProblemSetConfig, StudyConfig
from ngrpo.study.study_jobs import StudyJobs
from ngrpo.study.untrained import training_config
from ngrpo.training.run_length import RunLength
from ngrpo.utils.atomic_write import write_text

GIB = 2**30
_SPARE = 1.5
"""Of the planned time that a job may take: it is requeued and goes on after that."""


@dataclass(frozen=True)
class ArmPlan:
    """What an arm takes, if every response is as long as it may be.

    Attributes:
        arm: its name.
        trials: runs for the choice of its learning rate and strength.
        seeds: runs after that.
        hours: of one GPU, trials, runs and their evaluations together.
        devices: GPUs of a run.
        peak_gib: planned peak of memory on each.
        fits: whether the card has as much.
    """

    arm: str
    trials: int
    seeds: int
    hours: float
    devices: int
    peak_gib: float
    fits: bool


ReadRun = Callable[[DictConfig, int], RunSettings]
"""Reads a training's configuration, given a device's memory in bytes, for its plan."""


def plan_arms(conf: Path, study: StudyConfig, card: Card, read: ReadRun, folder: Path | None = None) -> list[ArmPlan]:
    """Plans every arm from the settings of its runs; the model's ``config.json`` is read, and no weights.

    Args:
        conf: the configuration's folder.
        study: the study.
        card: with measured figures.
        read: reads the configuration of a run.
        folder: ``--config-dir`` of its runs.
    """
    return [_plan_arm(conf, study, arm, card, read, folder) for arm in study.arms]


def plan_text(study: StudyConfig, plans: Sequence[ArmPlan], card: Card, price: float | None) -> str:
    """Returns the plan as a markdown table with its sums.

    Args:
        study: the study.
        plans: of its arms.
        card: that was planned for.
        price: of a GPU hour, in whatever currency; None for no costs.
    """
    hours = sum(one.hours for one in plans)
    cost = "" if price is None else f", {hours * price:z,.0f} at {price:g} an hour"
    rows = [
        f"| {one.arm} | {one.trials} | {one.seeds} | {one.devices} | {one.peak_gib:z.1f}"
        f"{'' if one.fits else ' (too much)'} | {one.hours:z,.1f} |"
        for one in plans
    ]
    return "\n".join(
        [
            f"Study {study.name} on {card.name}: {hours:z,.0f} GPU hours{cost}. Planned from the throughput that was",
            "measured with a 1.5B model, with every response as long as it may be; nothing of it was run.",
            "",
            "| arm | trials | seeds | GPUs of a run | peak GiB | GPU hours |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
            *rows,
            "",
        ]
    )


def write_jobs(study: StudyConfig, plans: Sequence[ArmPlan], out: Path, options: Sequence[str]) -> list[Path]:
    """Writes a job for SLURM for each arm, which tunes, runs and publishes it, and goes on after a requeue.

    Args:
        study: the study.
        plans: of its arms.
        out: folder of the runs; the jobs are put in ``slurm`` in it.
        options: of the command line that say which study it is: ``--study``, ``--config-dir`` and settings.
    """
    files = []
    for plan in plans:
        words = [*options, "--only", plan.arm, "--out", str(out / plan.arm)]
        limit = math.ceil(_SPARE * plan.hours / plan.devices)
        lines = [
            "#!/usr/bin/env bash",
            f"#SBATCH --job-name={study.name}-{plan.arm}",
            f"#SBATCH --gpus-per-node={plan.devices}",
            "#SBATCH --nodes=1",
            f"#SBATCH --time={limit}:00:00",
            f"#SBATCH --output={plan.arm}-%j.out",
            "#SBATCH --requeue",
            "set -euo pipefail",
            *(f"ngrpo study {stage} {shlex.join(words)}" for stage in ("base", "tune", "run", "publish")),
        ]
        files.append(out / "slurm" / f"{plan.arm}.sbatch")
        write_text(files[-1], "\n".join(lines) + "\n")
    return files


def _plan_arm(conf: Path, study: StudyConfig, arm: str, card: Card, read: ReadRun, folder: Path | None) -> ArmPlan:
    tune, definition = study.tune, study.arms[arm]
    length = RunLength(study.iterations, study.generated_tokens)
    trial = RunLength(tune.iterations, tune.generated_tokens)
    config = training_config(conf, StudyJobs(study, Path()).train_settings(arm, 0, tune.rates[0], length), folder)
    run = read(config, card.memory_bytes)
    memory = plan_memory(run)
    trials = len(tune.rates) * max(1, len(definition.strengths))
    trained = trials * _train_s(run, card, memory.numbers, trial)
    trained += definition.seeds * _train_s(run, card, memory.numbers, length)
    evaluated = trials * _evaluate_s(run, card, memory.numbers, tune.validation, config)
    evaluated += definition.seeds * _evaluate_s(run, card, memory.numbers, study.test, config)
    hours = (trained * run.devices + evaluated) / 3600
    return ArmPlan(arm, trials, definition.seeds, hours, run.devices, memory.peak / GIB, memory.fits)


def _train_s(run: RunSettings, card: Card, numbers: int, length: RunLength) -> float:
    """Returns the seconds of a training."""
    time = plan_time(run, card.update_flops, card, numbers, card.name)
    tokens = run.prompts_per_batch * run.group_size * run.max_new_tokens
    iterations = length.iterations
    if length.max_generated_tokens is not None:
        iterations = min(iterations, -(-length.max_generated_tokens // tokens))
    return iterations * sum(part or 0.0 for part in (time.generate_s, time.score_s, time.update_s))


def _evaluate_s(run: RunSettings, card: Card, numbers: int, problems: ProblemSetConfig, config: DictConfig) -> float:
    """Returns the seconds of an evaluation on one GPU."""
    slots = run.engine.slots
    return card.generation_s(problems.problems * problems.samples, slots, config.rollout.max_new_tokens, numbers * 2)
