"""The folder of a study, made again from its setting on the leaderboard: what is missing there goes on from it."""

import shutil
from filecmp import cmp
from pathlib import Path

from ngrpo.errors import SettingError
from ngrpo.study.definition import StudyConfig
from ngrpo.study.fingerprint import check_or_write_fingerprint
from ngrpo.study.leaderboard.adding import check_setting
from ngrpo.study.results import RESULT, Results, write
from ngrpo.study.stage_outputs import LEVELS, TUNED, read_rate_choices
from ngrpo.study.study_jobs import StudyJobs
from ngrpo.utils.atomic_write import write_text

MODEL = "base_model"
"""The folder in that of a setting with the model that its runs began with, where it is small enough to be stored."""


def restore(study: StudyConfig, out: Path, board: Path) -> Results:
    """Writes what a stored setting has of a study's arms into the study's folder; what is there is written again.

    The untrained model's answers, learning rates and runs are stored whole, so that further seeds and arms are made as
    if the study had never left. The model is the one of the setting, where it is stored there.

    Args:
        study: its arms may be fewer than those of the setting, or others.
        out: folder of the study.
        board: folder of the leaderboard.

    Returns:
        What is stored.

    Raises:
        SettingError: there is no such setting, it was made with other settings or another model, or the folder was.
    """
    stored = check_setting(study, board)
    restore_model(study, board)
    check_or_write_fingerprint(study, out)
    jobs = StudyJobs(study, out)
    if stored.base is not None:
        write(out / "base" / RESULT, stored.base)
    if stored.levels:
        write(out / LEVELS, stored.levels)
    tuned = {arm: one for arm, one in stored.tuned.items() if arm in study.arms}
    write(out / TUNED, read_rate_choices(out) | tuned)
    for arm, choice in tuned.items():
        for trial in choice.tried:
            write(jobs.rate_folder(arm, trial.rate, trial.strength) / RESULT, trial)
        for run in stored.of_arm(arm):
            write(jobs.run_folder(arm, choice, run.seed) / RESULT, run)
    return stored


def restore_model(study: StudyConfig, board: Path) -> None:
    """Puts the model that a setting's runs began with, where it is stored there, in the place of the study's.

    Raises:
        SettingError: another model is there, such as one that was made on another machine.
    """
    stored, model = board / study.name / MODEL, Path(study.base_model)
    if not stored.is_dir():
        return
    if not (model / "config.json").exists():
        shutil.copytree(stored, model, ignore=shutil.ignore_patterns("config.json"), dirs_exist_ok=True)
        write_text(model / "config.json", (stored / "config.json").read_text())  # last: a model with it counts as made
    elif not _same_weights(model, stored):
        raise SettingError(
            f"base_model={study.base_model} is not the model that the runs of setting {study.name} began with; move it "
            "away, and the one in the setting is taken."
        )


def _same_weights(model: Path, other: Path) -> bool:
    names, others = ({file.name for file in folder.glob("*.safetensors")} for folder in (model, other))
    return names == others and all(cmp(model / name, other / name, shallow=False) for name in names)
