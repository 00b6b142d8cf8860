"""Runs a study: the same training with many methods and seeds, compared with intervals.

    python scripts/study.py all --study demo --jobs 4
    python scripts/study.py report --results docs/study/demo.json --to docs/study

Stages, each of which goes on where an earlier call stopped: ``model`` (pretrains what is trained, if the study says
how), ``levels`` (accuracy by difficulty), ``base`` (evaluates the untrained model), ``tune`` (learning rates, on
validation problems), ``run`` (trains and evaluates every arm and seed), ``probe`` (speed and effect of mixing, alone on
the machine), ``report`` (table, figure, results.json). ``all`` is all of them but ``levels``. What a study consists of
is in conf/study; further arguments are settings of it, such as ``iterations=20``.
"""

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ngrpo.door import guarded
from ngrpo.errors import SettingError
from ngrpo.files import write_text
from ngrpo.lock import lock
from ngrpo.study.begun import go_on
from ngrpo.study.definition import StudyConfig, as_json, load_study
from ngrpo.study.figure import write_figure
from ngrpo.study.jobs import Job, Slice, run_jobs
from ngrpo.study.levels import levels
from ngrpo.study.probing import Load, probe
from ngrpo.study.results import Results, load, save, write
from ngrpo.study.store import collect
from ngrpo.study.table import tables
from ngrpo.study.work import Work, read_tuned, write_tuned

ROOT = Path(__file__).resolve().parents[1]
CONF = ROOT / "conf"
ALL = ("model", "base", "tune", "run", "probe", "report")
TUNED, PROBES, LEVELS, RESULTS = "tuned.json", "probes.json", "levels.json", "results.json"


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
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, spread over the visible GPUs")
    parser.add_argument("--limit-seconds", type=float, help="end by then; the same command goes on later")
    parser.add_argument("--to", type=Path, help="folder of table, figure and results.json (default: --out)")
    parser.add_argument("--results", type=Path, help="report of these results, without the runs")
    return parser.parse_intermixed_args()


def call_of(arguments: argparse.Namespace) -> Call:
    """What the command line asks for."""
    if arguments.jobs < 1:
        raise SettingError(f"--jobs {arguments.jobs} runs nothing; choose 1 or more.")
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
        write_tuned(call.out / TUNED, call.work.tuned())
    return left


def run(call: Call) -> list[str]:
    """Trains and evaluates every arm with every seed."""
    return _run(call, call.work.run_jobs(read_tuned(call.out / TUNED)))


def probing(call: Call) -> list[str]:
    """Measures the strategies of all arms on the untrained model, one process alone."""
    file = call.out / PROBES
    if file.exists():
        return []
    if call.slice.left() <= 0:
        return ["probe"]
    settings = {
        arm: [*call.study.train, f"model.path={call.study.base_model}", *one.overrides]
        for arm, one in call.study.arms.items()
    }
    size = call.study.probe
    found = probe(CONF, settings, Load(size.problems, size.samples, size.rounds))
    write(file, {arm: asdict(one) for arm, one in found.items()})
    return []


def difficulty(call: Call) -> list[str]:
    """Samples the untrained model at several difficulties, and names the one that suits the study."""
    found = levels(CONF, call.study)
    write(call.out / LEVELS, found.mean)
    for path, value in found.mean.items():
        print(f"{path}: Mean@1 {value:.3f}{'  <- levels.chosen' if path == found.chosen else ''}")
    return []


def report(call: Call) -> list[str]:
    """Writes the table, the figure and the results that both are made from."""
    results = _collected(call) if call.results is None else load(call.results)
    if call.results is None:
        save(results, call.to / RESULTS)
    write_text(call.to / f"{results.study['name']}.md", tables(results))
    write_figure(results, call.to / f"{results.study['name']}.png")
    print(tables(results))
    print(f"table and figure in {call.to}")
    return []


def _collected(call: Call) -> Results:
    levels_file = call.out / LEVELS
    found = json.loads(levels_file.read_text()) if levels_file.exists() else {}
    return collect(as_json(call.study), call.out, read_tuned(call.out / TUNED), call.out / PROBES, found)


def _run(call: Call, jobs: list[Job]) -> list[str]:
    return run_jobs(jobs, call.jobs, call.slice, ROOT, say=lambda line: print(line, flush=True))


STAGES: dict[str, Callable[[Call], list[str]]] = {
    "model": make_model,
    "levels": difficulty,
    "base": base,
    "tune": tune,
    "run": run,
    "probe": probing,
    "report": report,
}


if __name__ == "__main__":
    guarded(main)
