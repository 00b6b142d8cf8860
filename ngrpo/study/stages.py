"""The stages of a study; each continues where an earlier call stopped."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ngrpo.errors import SettingError
from ngrpo.study.definition import StudyConfig, as_json
from ngrpo.study.difficulty import measure_levels
from ngrpo.study.fingerprint import check_or_write_fingerprint
from ngrpo.study.markdown_tables import tables
from ngrpo.study.plots import write_figure
from ngrpo.study.probing import effects, speeds
from ngrpo.study.results import RESULT, AnswerStatistics, Results, load, read, save, write
from ngrpo.study.room import Room
from ngrpo.study.scheduler import Deadline, Job, run_jobs
from ngrpo.study.stage_outputs import (
    EFFECTS,
    LEVELS,
    SPEEDS,
    TUNED,
    collect,
    read_effects,
    read_rate_choices,
    read_speeds,
)
from ngrpo.study.study_jobs import StudyJobs
from ngrpo.study.untrained import UntrainedModel, load_untrained
from ngrpo.utils.atomic_write import write_text
from ngrpo.utils.lock import lock
from ngrpo.utils.standard_streams import survive_closed_streams

RESULTS = "results.json"


@dataclass(frozen=True)
class StageContext:
    """What every stage needs to know.

    Attributes:
        study: what is studied.
        conf: the configuration's folder.
        out: the study's folder.
        to: folder of table, figure and results.
        parallel: runs at a time.
        deadline: of this call.
        folder: ``--config-dir``: further yaml files and modules, for every run.
        on_cpu: further runs at a time that see no GPU.
    """

    study: StudyConfig
    conf: Path
    out: Path
    to: Path
    parallel: int
    deadline: Deadline
    folder: Path | None = None
    on_cpu: int = 0

    @property
    def jobs(self) -> StudyJobs:
        """What the stages run in processes of their own."""
        return StudyJobs(self.study, self.out, self.folder)


def run_stages(stages: Sequence[str], context: StageContext) -> bool:
    """Runs stages until one is not finished in time; says whether all are.

    Args:
        stages: names of `STAGES`.
        context: what they need.
    """
    survive_closed_streams()
    with lock(context.out):
        if not set(stages) <= {"model", "levels"}:  # the second chooses a setting, for what the first made
            check_or_write_fingerprint(context.study, context.out)
        for name in stages:
            unfinished = STAGES[name](context)
            if unfinished:
                print(f"stage {name}: {len(unfinished)} not done yet; run the same command again", flush=True)
                return False
    return True


def make_model(context: StageContext) -> list[str]:
    """Pretrains the model, if it is one of the project's own and not there yet."""
    return _run(context, context.jobs.model_job())


def choose_level(context: StageContext) -> list[str]:
    """Samples the untrained model at several difficulties, and names the one that suits the study."""
    found = measure_levels(context.conf, context.study, context.folder)
    write(context.out / LEVELS, {path: room.metrics() for path, room in found.rooms.items()})
    for path, room in found.rooms.items():
        print(f"{path}: {room.sentence(context.study.levels)}{'  <- levels.chosen' if path == found.chosen else ''}")
    return []


def evaluate_base(context: StageContext) -> list[str]:
    """Evaluates the untrained model on the test problems, and says whether they leave the room that is asked for."""
    unfinished = _run(context, context.jobs.base_job())
    if not unfinished:
        base = AnswerStatistics(**read(context.out / "base" / RESULT))
        room = Room.of(base.samples, base.right)
        print(f"test problems before training: {room.sentence(context.study.levels)}", flush=True)
    return unfinished


def tune(context: StageContext) -> list[str]:
    """Tries every learning rate of every arm and chooses."""
    unfinished = _run(context, context.jobs.tune_jobs())
    if not unfinished:
        others = {arm: one for arm, one in read_rate_choices(context.out).items() if arm not in context.study.arms}
        write(context.out / TUNED, others | context.jobs.rate_choices())
    return unfinished


def run(context: StageContext) -> list[str]:
    """Trains and evaluates every arm with every seed."""
    return _run(context, context.jobs.run_jobs(read_rate_choices(context.out)))


def measure_effect(context: StageContext) -> list[str]:
    """Measures what mixed steps of the untrained model change."""
    known = read_effects(context.out)
    if set(context.study.arms) <= set(known):
        return []
    if context.deadline.remaining_s() <= 0:
        return ["effect"]
    done = effects(_untrained(context), known, context.deadline, partial(write, context.out / EFFECTS))
    return [] if done else ["effect"]


def measure_speed(context: StageContext) -> list[str]:
    """Measures generation with the untrained model, in one process alone."""
    known, rounds = read_speeds(context.out), context.study.probe.rounds
    if all(arm in known and len(known[arm].tokens_per_s) >= rounds for arm in context.study.arms):
        return []
    if context.deadline.remaining_s() <= 0:
        return ["speed"]
    done = speeds(_untrained(context), rounds, known, context.deadline, partial(write, context.out / SPEEDS))
    return [] if done else ["speed"]


def report(context: StageContext) -> list[str]:
    """Writes the results, and the table and the figure that are made from them.

    Raises:
        SettingError: there are none at all.
    """
    results = collect(as_json(context.study), context.out)
    if results.base is None and not results.runs:
        raise SettingError(
            f"{context.out} has no results of study {context.study.name}; run its stages first, or give the folder "
            "that they wrote to with --out."
        )
    save(results, context.to / RESULTS)
    _write_report(results, context.to)
    return []


def report_of(results: Path, to: Path) -> None:
    """Writes the table and the figure of stored results.

    Args:
        results: a ``results.json``.
        to: folder of the table and the figure.
    """
    _write_report(load(results), to)


def _write_report(results: Results, to: Path) -> None:
    write_text(to / f"{results.study['name']}.md", tables(results))
    write_figure(results, to / f"{results.study['name']}.png")
    print(tables(results))
    print(f"table and figure in {to}")


def _untrained(context: StageContext) -> UntrainedModel:
    study = context.study
    settings = {
        arm: [*study.train, f"model.path={study.base_model}", *one.overrides] for arm, one in study.arms.items()
    }
    return load_untrained(context.conf, settings, study.probe.problems, study.probe.samples, context.folder)


def _run(context: StageContext, jobs: list[Job]) -> list[str]:
    say = partial(print, flush=True)
    return run_jobs(jobs, context.parallel, context.deadline, say=say, on_cpu=context.on_cpu)


STAGES: dict[str, Callable[[StageContext], list[str]]] = {
    "model": make_model,
    "levels": choose_level,
    "base": evaluate_base,
    "tune": tune,
    "run": run,
    "effect": measure_effect,
    "speed": measure_speed,
    "report": report,
}
"""The stages in their order; each returns the names of what is not done yet."""

ALL = tuple(name for name in STAGES if name != "levels")
"""The stages of ``all``."""
