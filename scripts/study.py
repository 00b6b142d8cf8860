"""Runs a study: the same training with many methods and seeds, compared with intervals.

    python scripts/study.py all --study demo --jobs 4
    python scripts/study.py report --results docs/study/demo.json --to docs/study

Stages, each of which goes on where an earlier call stopped: ``model`` (pretrains what is trained, if the study says
how), ``levels`` (accuracy by difficulty), ``base`` (evaluates the untrained model), ``tune`` (learning rates, on
validation problems), ``run`` (trains and evaluates every arm and seed), ``effect`` (what mixed steps change), ``speed``
(of generation; the machine has to be free), ``report`` (table, figure, results.json). ``all`` is all of them but
``levels``. What a study consists of is in conf/study; further arguments are settings of it, such as ``iterations=20``.
"""

import argparse
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ngrpo.entrypoints.arguments import real, whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.study.definition import StudyConfig, as_json, load_study
from ngrpo.study.difficulty import levels
from ngrpo.study.figure import write_figure
from ngrpo.study.fingerprint import go_on
from ngrpo.study.finished import EFFECTS, LEVELS, SPEEDS, TUNED, collect, read_effects, read_speeds, read_tuned
from ngrpo.study.probing import effects, speeds
from ngrpo.study.results import load, save, write
from ngrpo.study.scheduler import Job, Slice, run_jobs
from ngrpo.study.stages import Work
from ngrpo.study.table import tables
from ngrpo.study.untrained import Untrained, untrained
from ngrpo.utils.atomic_write import write_text
from ngrpo.utils.lock import lock
from ngrpo.utils.standard_streams import survive_closed_streams

ROOT = Path(__file__).resolve().parents[1]
CONF = ROOT / "conf"
ALL = ("model", "base", "tune", "run", "effect", "speed", "report")
RESULTS = "results.json"


@dataclass(frozen=True)
class Call:
    """One call of this script.

    Attributes:
        study: what is studied.
        out: its folder.
        work: makes its jobs.
        jobs: runs side by side.
        slice: the time there is.
        to: folder of table, figure and results.
        results: results to report of, in place of the study's folder.
    """

    study: StudyConfig
    out: Path
    work: Work
    jobs: int
    slice: Slice
    to: Path
    results: Path | None


def main() -> None:
    """Runs the stages that are asked for, until the time is up."""
    arguments = parse()
    call = call_of(arguments)
    if arguments.stage == "report" and call.results is not None:
        report(call)
        return
    survive_closed_streams()
    os.chdir(ROOT)
    with lock(call.out):
        if arguments.stage not in ("model", "levels"):  # the second chooses a setting, for what the first made
            go_on(call.study, call.out)
        for stage in ALL if arguments.stage == "all" else (arguments.stage,):
            left = STAGES[stage](call)
            if left:
                print(f"stage {stage}: {len(left)} not done yet; the same command goes on with them", flush=True)
                return


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["all", *STAGES])
    parser.add_argument("settings", nargs="*", help="of the study, such as iterations=20 or base_model=FOLDER")
    parser.add_argument("--study", default="demo", help="a file of conf/study")
    parser.add_argument("--quick", action="store_true", help="--study quick: a few minutes on two CPU cores")
    parser.add_argument("--out", type=Path, help="folder of the runs (default: outputs/study/NAME)")
    parser.add_argument("--jobs", type=whole(1, 1024), default=1, help="runs at a time, spread over the visible GPUs")
    parser.add_argument("--limit-seconds", type=real(-math.inf), help="end by then; the same command goes on later")
    parser.add_argument("--to", type=Path, help="folder of table, figure and results.json (default: --out)")
    parser.add_argument("--results", type=Path, help="report of these results, without the runs")
    return parser.parse_intermixed_args()


def call_of(arguments: argparse.Namespace) -> Call:
    """What the command line asks for."""
    name = "quick" if arguments.quick else arguments.study
    study = load_study(CONF, name, arguments.settings)
    out = (arguments.out or Path("outputs/study") / name).absolute()
    to = (arguments.to or out).absolute()
    slice_ = Slice.of(arguments.limit_seconds)
    results = None if arguments.results is None else arguments.results.absolute()
    return Call(study, out, Work(study, out), arguments.jobs, slice_, to, results)


def make_model(call: Call) -> list[str]:
    """Pretrains the model, if it is one of the project's own and not there yet."""
    return _run(call, call.work.model_job())


def base(call: Call) -> list[str]:
    """Evaluates the untrained model on the test problems."""
    return _run(call, call.work.base_job())


def tune(call: Call) -> list[str]:
    """Tries every learning rate of every arm and chooses."""
    left = _run(call, call.work.tune_jobs())
    if not left:
        write(call.out / TUNED, call.work.tuned())
    return left


def run(call: Call) -> list[str]:
    """Trains and evaluates every arm with every seed."""
    return _run(call, call.work.run_jobs(read_tuned(call.out)))


def effect(call: Call) -> list[str]:
    """Measures what mixed steps of the untrained model change."""
    known = read_effects(call.out)
    if set(call.study.arms) <= set(known):
        return []
    if call.slice.left() <= 0:
        return ["effect"]
    done = effects(_untrained(call), known, call.slice, partial(write, call.out / EFFECTS))
    return [] if done else ["effect"]


def speed(call: Call) -> list[str]:
    """Measures generation with the untrained model, in one process alone."""
    known, rounds = read_speeds(call.out), call.study.probe.rounds
    if all(arm in known and len(known[arm].tokens_per_s) >= rounds for arm in call.study.arms):
        return []
    if call.slice.left() <= 0:
        return ["speed"]
    done = speeds(_untrained(call), rounds, known, call.slice, partial(write, call.out / SPEEDS))
    return [] if done else ["speed"]


def _untrained(call: Call) -> Untrained:
    study = call.study
    settings = {
        arm: [*study.train, f"model.path={study.base_model}", *one.overrides] for arm, one in study.arms.items()
    }
    return untrained(CONF, settings, study.probe.problems, study.probe.samples)


def difficulty(call: Call) -> list[str]:
    """Samples the untrained model at several difficulties, and names the one that suits the study."""
    found = levels(CONF, call.study)
    write(call.out / LEVELS, found.mean)
    for path, value in found.mean.items():
        print(f"{path}: Mean@1 {value:.3f}{'  <- levels.chosen' if path == found.chosen else ''}")
    return []


def report(call: Call) -> list[str]:
    """Writes the table, the figure and the results that both are made from."""
    results = collect(as_json(call.study), call.out) if call.results is None else load(call.results)
    if call.results is None:
        save(results, call.to / RESULTS)
    write_text(call.to / f"{results.study['name']}.md", tables(results))
    write_figure(results, call.to / f"{results.study['name']}.png")
    print(tables(results))
    print(f"table and figure in {call.to}")
    return []


def _run(call: Call, jobs: list[Job]) -> list[str]:
    return run_jobs(jobs, call.jobs, call.slice, ROOT, say=lambda line: print(line, flush=True))


STAGES: dict[str, Callable[[Call], list[str]]] = {
    "model": make_model,
    "levels": difficulty,
    "base": base,
    "tune": tune,
    "run": run,
    "effect": effect,
    "speed": speed,
    "report": report,
}


if __name__ == "__main__":
    run_main(main)
