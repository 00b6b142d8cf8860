"""A new method on the leaderboard: trained in a stored setting, and shown beside the arms that are there."""

from dataclasses import replace
from pathlib import Path

from ngrpo.errors import SettingError
from ngrpo.study.definition import ArmConfig, StudyConfig, as_json
from ngrpo.study.fingerprint import differing
from ngrpo.study.leaderboard.files import SETTING, beside, publish, read_setting
from ngrpo.study.results import Results
from ngrpo.study.stage_outputs import collect


def with_arm(study: StudyConfig, name: str, overrides: list[str], seeds: int, strengths: list[str]) -> StudyConfig:
    """Returns a study of a new arm alone, with the learning rates, budget and evaluation of the others.

    Raises:
        SettingError: the name is taken, or no name of a file.
    """
    if name in study.arms:
        raise SettingError(f"--arm {name} is an arm of study {study.name} already; give the new one another name.")
    if not name.replace("_", "").isalnum() or f"{name}.json" == SETTING:
        raise SettingError(f"--arm {name} cannot name a file; choose letters, digits and _, such as min_p_grpo.")
    if not overrides:
        raise SettingError(
            f"--arm {name} has no settings; say what it is with --with, such as --with exploration=min_p."
        )
    return replace(study, arms={name: ArmConfig(overrides, seeds, None, strengths)}, reference=name, primary=None)


def check_setting(study: StudyConfig, board: Path) -> Results:
    """Compares a study, and those of its arms that have runs there, with the stored setting of its name; returns it.

    Raises:
        SettingError: there is none, or it was made with other settings.
    """
    place = board / study.name
    if not (place / SETTING).exists():
        raise SettingError(f"{place} has no setting to add an arm to; publish its study first.")
    found = read_setting(place)
    started = {run.arm for run in found.runs}
    stored = {**found.study, "arms": {arm: one for arm, one in found.study["arms"].items() if arm in started}}
    free = ("reference", "primary", "make_model", "base_model", "keep_files", "probe")
    here, there = ({name: value for name, value in one.items() if name not in free} for one in (as_json(study), stored))
    rates = ("tune.rates", str(study.tune.rates), str(stored["tune"]["rates"]))  # which a study of its own may change
    for name, now, before in [*differing(here, there), *([rates] if rates[1] != rates[2] else [])]:
        raise SettingError(
            f"{name}={now} is not the {before} of the leaderboard's setting {study.name}; put it back, so that the "
            "arms can be compared, or give what differs another name."
        )
    return found


def add_arm(study: StudyConfig, out: Path, board: Path) -> Path:
    """Puts the finished runs of a study with one arm (`with_arm`) on the leaderboard; returns the arm's file."""
    (name,) = study.arms
    stored, own = read_setting(board / study.name), collect(as_json(study), out)
    arms = {**stored.study["arms"], name: own.study["arms"][name]}
    publish(beside(stored, replace(own, study={**stored.study, "arms": arms})), board)
    return board / study.name / f"{name}.json"
