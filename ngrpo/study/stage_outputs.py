"""The output files of a study's stages, read back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ngrpo.errors import SettingError
from ngrpo.study.results import (
    RESULT,
    AnswerStatistics,
    Effect,
    RateChoice,
    Results,
    RunResult,
    Speed,
    effects_of,
    levels_of,
    rate_choice_of,
    read,
    run_of,
    speeds_of,
)

TUNED, SPEEDS, EFFECTS, LEVELS = "tuned.json", "speeds.json", "effects.json", "levels.json"
"""Files in a study's folder, each written by `ngrpo.study.results.write`."""


def read_rate_choices(out: Path) -> dict[str, RateChoice]:
    """Returns the chosen learning rates by arm; none before all were tried."""
    return {arm: rate_choice_of(one) for arm, one in read(out / TUNED).items()}


def read_speeds(out: Path) -> dict[str, Speed]:
    """Returns the speeds by arm, as far as they are measured."""
    return speeds_of(read(out / SPEEDS))


def read_effects(out: Path) -> dict[str, Effect | None]:
    """Returns the effects by arm, as far as they are measured."""
    return effects_of(read(out / EFFECTS))


def collect(study: Mapping[str, Any], out: Path) -> Results:
    """Returns the results of a study's folder, as far as they are there.

    Args:
        study: the definition, as JSON values; runs of other arms are excluded, and so are those with another
            learning rate or strength than the chosen one.
        out: the folder.

    Raises:
        SettingError: a run's file does not hold what it should, such as one that a later version wrote.
    """
    base, tuned = read(out / "base" / RESULT), read_rate_choices(out)
    runs = [_run_in(file) for file in sorted((out / "runs").glob(f"*/*/seed-*/{RESULT}"))]
    chosen = {arm: one for arm, one in tuned.items() if arm in study["arms"]}
    return Results(
        study=study,
        base=AnswerStatistics(**base) if base else None,
        tuned=tuned,
        runs=[run for run in runs if run.arm in chosen and _is_of(run, chosen[run.arm])],
        speeds=read_speeds(out),
        effects=read_effects(out),
        levels=levels_of(read(out / LEVELS)),
    )


def _run_in(file: Path) -> RunResult:
    try:
        return run_of(read(file))
    except (KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {str(error)[:100]}"
        raise SettingError(
            f"{file} holds no run of a study ({reason}); remove it, and the study makes it again."
        ) from error


def _is_of(run: RunResult, chosen: RateChoice) -> bool:
    return run.rate == chosen.chosen and (chosen.strength is None or chosen.strength in run.settings)
