"""The folder of a study, made again from its setting on the leaderboard: what is missing there goes on from it."""

import shutil
from pathlib import Path

from ngrpo.study.definition import StudyConfig
from ngrpo.study.fingerprint import check_or_write_fingerprint
from ngrpo.study.leaderboard.adding import check_setting
from ngrpo.study.leaderboard.files import read_setting
from ngrpo.study.results import RESULT, Results, write
from ngrpo.study.stage_outputs import LEVELS, TUNED
from ngrpo.study.study_jobs import StudyJobs

MODEL = "base_model"
"""The folder in that of a setting with the model that its runs began with, where it is small enough to be stored."""


def restore(study: StudyConfig, out: Path, board: Path) -> Results:
    """Writes what a stored setting has of a study's arms into the study's folder; what is there is written again.

    The untrained model's answers, learning rates and runs are stored whole, so that further seeds and arms are made as
    if the study had never left. The model is taken from the setting where it is stored there and not made yet.

    Args:
        study: its arms may be fewer than those of the setting, or others.
        out: folder of the study.
        board: folder of the leaderboard.

    Returns:
        What is stored.

    Raises:
        SettingError: there is no such setting, it was made with other settings, or the folder was.
    """
    check_setting(study, board)
    check_or_write_fingerprint(study, out)
    stored, jobs = read_setting(board / study.name), StudyJobs(study, out)
    if stored.base is not None:
        write(out / "base" / RESULT, stored.base)
    if stored.levels:
        write(out / LEVELS, stored.levels)
    tuned = {arm: one for arm, one in stored.tuned.items() if arm in study.arms}
    write(out / TUNED, tuned)
    for arm, choice in tuned.items():
        for trial in choice.tried:
            write(jobs.rate_folder(arm, trial.rate, trial.strength) / RESULT, trial)
        for run in stored.of_arm(arm):
            write(jobs.run_folder(arm, choice, run.seed) / RESULT, run)
    model = board / study.name / MODEL
    if model.is_dir() and not (Path(study.base_model) / "config.json").exists():
        shutil.copytree(model, study.base_model, dirs_exist_ok=True)
    return stored
