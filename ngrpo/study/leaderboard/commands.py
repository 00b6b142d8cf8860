"""The commands of the leaderboard: publish a study, restore one, and add an arm to a setting."""

from pathlib import Path

from ngrpo.study.definition import as_json
from ngrpo.study.leaderboard.adding import add_arm, check_setting
from ngrpo.study.leaderboard.files import publish
from ngrpo.study.leaderboard.page import write_leaderboard
from ngrpo.study.leaderboard.restoring import restore
from ngrpo.study.stage_outputs import collect
from ngrpo.study.stages import StageContext, run_stages

BOARD = Path("docs/results")
"""Where the leaderboard is, seen from the project's folder."""


def publish_study(context: StageContext, board: Path) -> None:
    """Writes a study's finished arms to the leaderboard, and makes its page."""
    written = publish(collect(as_json(context.study), context.out), board)
    print(f"{len(written)} arms of study {context.study.name} in {write_leaderboard(board)}")


def restore_study(context: StageContext, board: Path) -> None:
    """Writes a setting's runs into the folder of its study, where ``run`` makes those that are missing."""
    stored = restore(context.study, context.out, board)
    print(f"{len(stored.runs)} runs of setting {context.study.name} in {context.out}; the stage run makes the others")


def add(context: StageContext, board: Path) -> None:
    """Trains the one arm of a study, with its learning rate chosen as others' were, and adds it to the leaderboard."""
    check_setting(context.study, board)
    if run_stages(("model", "tune", "run"), context):
        file = add_arm(context.study, context.out, board)
        print(f"{file} is shown in {write_leaderboard(board)}")
