"""The commands of the leaderboard: publish a study, and add an arm to a setting."""

from pathlib import Path

from ngrpo.study.definition import as_json
from ngrpo.study.leaderboard.adding import add_arm, check_setting
from ngrpo.study.leaderboard.files import publish
from ngrpo.study.leaderboard.page import write_leaderboard
from ngrpo.study.stage_outputs import collect
from ngrpo.study.stages import StageContext, run_stages

BOARD = Path("docs/results")
"""Where the leaderboard is, seen from the project's folder."""


def publish_study(context: StageContext, board: Path) -> None:
    """Writes a study's finished arms to the leaderboard, and makes its page."""
    written = publish(collect(as_json(context.study), context.out), board)
    print(f"{len(written)} arms of study {context.study.name} in {write_leaderboard(board)}")


def add(context: StageContext, board: Path) -> None:
    """Trains the one arm of a study, with its learning rate chosen as others' were, and adds it to the leaderboard."""
    check_setting(context.study, board)
    if run_stages(("model", "tune", "run"), context):
        file = add_arm(context.study, context.out, board)
        print(f"{file} is shown in {write_leaderboard(board)}")
