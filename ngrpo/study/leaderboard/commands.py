"""The commands of the leaderboard: publish a study, restore one, and add an arm to a setting."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ngrpo.study.definition import as_json, only
from ngrpo.study.fingerprint import check_fingerprint
from ngrpo.study.leaderboard.adding import add_arm, check_setting
from ngrpo.study.leaderboard.files import SETTING, beside, publish
from ngrpo.study.leaderboard.page import write_leaderboard
from ngrpo.study.leaderboard.restoring import restore, restore_model
from ngrpo.study.stage_outputs import collect
from ngrpo.study.stages import StageContext, run_stages
from ngrpo.utils.lock import in_turn

BOARD = Path("docs/results")
"""Where the leaderboard is, seen from the project's folder."""


def publish_study(context: StageContext, board: Path, arms: Sequence[str] = ()) -> None:
    """Writes a study's finished arms to the leaderboard, beside those that are there, and makes its page.

    Args:
        context: of the whole study, whose definition the setting gets.
        board: folder of the leaderboard.
        arms: to write, such as one that a job of its own has made; all of them where none is named.

    Raises:
        SettingError: the folder's runs, or the setting's, were made with other settings.
    """
    study, place = context.study, board / context.study.name
    check_fingerprint(study, context.out)
    chosen = only(study, arms).arms
    found = collect(as_json(study), context.out)
    results = replace(found, runs=[run for run in found.runs if run.arm in chosen])
    with in_turn(board):  # jobs that end together would write what another has just made anew
        if (place / SETTING).exists():
            results = beside(check_setting(study, board), results)
        publish(results, board)
        page = write_leaderboard(board)
    print(f"{len({run.arm for run in results.runs})} arms of setting {study.name} in {page}")


def restore_study(context: StageContext, board: Path) -> None:
    """Writes a setting's runs into the folder of its study, where ``run`` makes those that are missing."""
    stored = restore(context.study, context.out, board)
    print(f"{len(stored.runs)} runs of setting {context.study.name} in {context.out}; the stage run makes the others")


def add(context: StageContext, board: Path) -> None:
    """Trains the one arm of a study, with its learning rate chosen as others' were, and adds it to the leaderboard."""
    check_setting(context.study, board)
    restore_model(context.study, board)
    if run_stages(("model", "tune", "run"), context):
        with in_turn(board):
            file, page = add_arm(context.study, context.out, board), write_leaderboard(board)
        print(f"{file} is shown in {page}")
