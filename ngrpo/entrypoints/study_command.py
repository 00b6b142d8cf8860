"""The command line of a study: the same training with many methods and seeds, compared with intervals.

    ngrpo study all --study demo --jobs 4
    ngrpo study report --results docs/study/demo/results.json --to docs/study

Each stage continues where an earlier call stopped: ``model`` (pretrains what is trained, if the study says how),
``levels`` (accuracy by difficulty), ``base`` (evaluates the untrained model), ``tune`` (learning rates, on validation
problems), ``run`` (trains and evaluates every arm and seed), ``effect`` (what mixed steps change), ``speed`` (of
generation; the machine has to be free), ``report`` (table, figure, results.json). ``all`` is all of these but
``levels``. ``publish`` writes the arms to the leaderboard, ``restore`` writes what is there into the study's folder, so
that ``run`` makes the seeds that are missing, and ``leaderboard`` makes its page again from its files:

    ngrpo study add --study countdown --arm min_p_grpo --with exploration=min_p --with algo=grpo --seeds 5

trains a further method in a setting of the leaderboard, with its learning rate chosen as those of the others were, and
adds its row. ``plan`` computes hours, memory and cost on a card of which the throughput is known, and writes jobs for
SLURM, as for the papers' model:

    ngrpo study plan --setting r1_distill_1_5b --card H200 --price 3

What a study consists of is in conf/study; further arguments are settings of it, such as
``iterations=20``.
``--config-dir FOLDER`` adds studies (``FOLDER/study/NAME.yaml``), strategies and modules of your own.
"""

import argparse
import math
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from ngrpo.entrypoints.arguments import real, whole
from ngrpo.entrypoints.hydra_main import CONF, typed_only

_STAGES = ("all", "model", "levels", "base", "tune", "run", "effect", "speed", "report")
_OTHERS = ("publish", "restore", "add", "leaderboard", "plan")


def main() -> None:
    """Runs the stages that are asked for, until the time is up."""
    began = time.monotonic()
    arguments = _parse()
    from ngrpo.config.config_dir import search_path

    with typed_only([*search_path(arguments.config_dir), *arguments.settings]):
        _run(arguments, began)


def _run(arguments: argparse.Namespace, began: float) -> None:
    from ngrpo.entrypoints.refused_run import removing_new
    from ngrpo.study.definition import load_study, only
    from ngrpo.study.fingerprint import FINGERPRINT
    from ngrpo.study.leaderboard.adding import with_arm
    from ngrpo.study.leaderboard.commands import BOARD, add, publish_study, restore_study
    from ngrpo.study.leaderboard.page import write_leaderboard
    from ngrpo.study.scheduler import Deadline
    from ngrpo.study.stages import ALL, StageContext, report_of, run_stages

    board = (arguments.leaderboard or BOARD).absolute()
    if arguments.stage == "leaderboard":
        print(f"leaderboard in {write_leaderboard(board)}")
        return
    name, folder = "quick" if arguments.quick else arguments.study, arguments.config_dir
    whole_study = load_study(CONF, name, arguments.settings, folder)
    study = only(whole_study, arguments.only)
    out = (arguments.out or Path("outputs/study") / name).absolute()
    to = (arguments.to or out).absolute()
    if arguments.stage == "plan":
        _plan(arguments, name, out)
        return
    if arguments.stage == "report" and arguments.results is not None:
        report_of(arguments.results, to)
        return
    if arguments.stage == "add":
        study = with_arm(study, arguments.arm, arguments.with_, arguments.seeds, arguments.strength)
    # Counted from the beginning of the command: on a busy machine the imports alone take long.
    deadline = Deadline.after(arguments.limit_seconds, since=began)
    context = StageContext(study, CONF, out, to, arguments.jobs, deadline, folder, arguments.cpu_jobs)
    with nullcontext() if arguments.out else removing_new(out, {".lock", FINGERPRINT}):
        if arguments.stage == "add":
            add(context, board)
        elif arguments.stage == "publish":
            publish_study(replace(context, study=whole_study), board, arguments.only)
        elif arguments.stage == "restore":
            restore_study(context, board)
        else:
            run_stages(ALL if arguments.stage == "all" else (arguments.stage,), context)


def _plan(arguments: argparse.Namespace, name: str, out: Path) -> None:
    from ngrpo.entrypoints.planned_run import read_run
    from ngrpo.errors import SettingError
    from ngrpo.planning.cards import CARDS, known_card
    from ngrpo.study.definition import load_study, only
    from ngrpo.study.scale_plan import plan_arms, plan_text, write_jobs

    card = known_card(arguments.card)
    if card is None:
        known = " or ".join(one.name for one in CARDS)
        raise SettingError(f"--card {arguments.card} was not measured; choose {known}.")
    study = only(load_study(CONF, name, arguments.settings, arguments.config_dir), arguments.only)
    plans = plan_arms(CONF, study, card, read_run, arguments.config_dir)
    print(plan_text(study, plans, card, arguments.price))
    options = ["--study", name]
    for option, folder in (("--config-dir", arguments.config_dir), ("--leaderboard", arguments.leaderboard)):
        options += [] if folder is None else [option, str(folder)]
    files = write_jobs(study, plans, out, [*options, *arguments.settings])
    print(f"{len(files)} jobs in {files[0].parent}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=(*_STAGES, *_OTHERS))
    parser.add_argument("settings", nargs="*", help="of the study, such as iterations=20 or base_model=FOLDER")
    parser.add_argument(
        "--study", "--setting", default="demo", help="a file of conf/study, or of study/ in --config-dir"
    )
    parser.add_argument("--config-dir", type=Path, help="a folder of yaml files and modules of yours, for every run")
    parser.add_argument("--quick", action="store_true", help="--study quick: a few minutes on two CPU cores")
    parser.add_argument("--out", type=Path, help="folder of the runs (default: outputs/study/NAME)")
    parser.add_argument("--jobs", type=whole(1, 1024), default=1, help="runs at a time, spread over the visible GPUs")
    parser.add_argument("--cpu-jobs", type=whole(0, 1024), default=0, help="further runs at a time, on the CPU")
    parser.add_argument("--limit-seconds", type=real(-math.inf), help="end by then; the same command continues later")
    parser.add_argument("--to", type=Path, help="folder of table, figure and results.json (default: --out)")
    parser.add_argument("--results", type=Path, help="report of these results, without the runs")
    parser.add_argument("--leaderboard", type=Path, help="folder of the leaderboard (default: docs/results)")
    parser.add_argument(
        "--only", action="append", default=[], metavar="ARM", help="this arm, and others so named, alone"
    )
    parser.add_argument("--card", default="H200", help="plan: a card that was measured")
    parser.add_argument("--price", type=real(0), help="plan: of a GPU hour")
    parser.add_argument("--arm", default="", help="add: name of the new arm, such as min_p_grpo")
    parser.add_argument("--with", action="append", default=[], dest="with_", metavar="SETTING", help="add: of the arm")
    parser.add_argument(
        "--strength", action="append", default=[], metavar="SETTING", help="add: a strength to try; the best is taken"
    )
    parser.add_argument("--seeds", type=whole(1, 100), default=5, help="add: runs of the new arm")
    return parser.parse_intermixed_args()


if __name__ == "__main__":
    from ngrpo.entrypoints.error_handling import run_main

    run_main(main)
