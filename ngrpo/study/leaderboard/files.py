"""The files of the leaderboard: one for each setting, and one for each arm in it.

``FOLDER/SETTING/setting.json`` holds the study's definition, of its arms those that have no run yet, and the untrained
model's answers; ``FOLDER/SETTING/ARM.json`` an arm's definition, learning rates and runs, with what they ran on and
what they took. The figures in it are for readers: tables are made from the runs.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ngrpo.errors import SettingError
from ngrpo.study.arm_summary import summaries
from ngrpo.study.results import (
    AnswerStatistics,
    RateChoice,
    Results,
    RunResult,
    levels_of,
    rate_choice_of,
    read,
    run_of,
    write,
)
from ngrpo.study.statistics import Mean

SETTING = "setting.json"
"""The file of a setting; no arm may be named so."""

_ROLES = ("arm", "against")


def publish(results: Results, folder: Path) -> list[Path]:
    """Writes a study's finished arms beside those that are there; returns the files of the arms.

    Args:
        results: of the study.
        folder: of the leaderboard.
    """
    place = folder / str(results.study["name"])
    started = [summary.arm for summary in summaries(results)]
    waiting = {arm: one for arm, one in results.study["arms"].items() if arm not in started}
    definition = {**results.study, "arms": waiting}
    base = None if results.base is None else asdict(results.base)
    write(place / SETTING, {"study": definition, "base": base, "levels": results.levels})
    written = []
    for summary in summaries(results):
        runs = results.of_arm(summary.arm)
        entry = {
            "arm": summary.arm,
            "setting": results.study["name"],
            "definition": results.study["arms"][summary.arm],
            **_provenance(runs),
            "tuned": results.tuned.get(summary.arm),
            "figures": {name: _plain(mean) for name, mean in summary.figures.items()},
            "differences": {name: _plain(mean) for name, mean in (summary.differences or {}).items()},
            "runs": [asdict(run) for run in runs],
        }
        write(place / f"{summary.arm}.json", entry)
        written.append(place / f"{summary.arm}.json")
    return written


def beside(stored: Results, own: Results) -> Results:
    """Returns a study's results with the stored ones of the arms that it has no run of.

    Args:
        stored: of its setting.
        own: of the study, whose definition the setting gets.
    """
    kept = {run.arm for run in stored.runs} - {run.arm for run in own.runs}
    first, second = (stored, own) if kept else (own, stored)  # kept figures stay relative to the same untrained model
    return Results(
        study={**own.study, "arms": {**own.study["arms"], **{arm: stored.study["arms"][arm] for arm in sorted(kept)}}},
        base=first.base or second.base,
        tuned={**own.tuned, **{arm: one for arm, one in stored.tuned.items() if arm in kept}},
        runs=[*(run for run in stored.runs if run.arm in kept), *own.runs],
        levels=first.levels or second.levels,
    )


def read_settings(folder: Path) -> list[Results]:
    """Returns the results of all settings in a leaderboard's folder, by name.

    Raises:
        SettingError: there is none, one lacks its definition, or a file does not hold what it should.
    """
    places = sorted({file.parent for file in folder.glob("*/*.json")})
    if not places:
        raise SettingError(f"{folder} holds no setting of a leaderboard; give the folder that `study publish` wrote.")
    return [read_setting(place) for place in places]


def read_setting(place: Path) -> Results:
    """Returns the results in the folder of one setting.

    Raises:
        SettingError: it lacks its definition or an arm that it compares, or a file does not hold what it should.
    """
    setting = read(place / SETTING)
    if not setting:
        raise SettingError(f"{place} holds arms and no {SETTING}; put it back, or publish the study again.")
    entries = {file.stem: _arm_in(file) for file in sorted(place.glob("*.json")) if file.name != SETTING}
    try:
        _check_compared(setting["study"], entries, place)
        base = setting["base"]
        started = {arm: entry["definition"] for arm, entry in entries.items()}
        return Results(
            study={**setting["study"], "arms": {**setting["study"]["arms"], **started}},
            base=None if base is None else AnswerStatistics(**base),
            tuned={arm: _tuned(entry) for arm, entry in entries.items() if entry["tuned"] is not None},
            runs=[run_of(run) for entry in entries.values() for run in entry["runs"]],
            levels=levels_of(setting["levels"]),
        )
    except (KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise SettingError(f"{place} holds no setting of a leaderboard ({reason}); publish it again.") from error


def _arm_in(file: Path) -> dict[str, Any]:
    """Returns what an arm's file holds, which must be of that arm, with every seed once."""
    entry = read(file)
    try:
        runs = [(run["arm"], run["seed"]) for run in entry["runs"]]
        _ = entry["definition"], entry["tuned"]
    except (KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise SettingError(f"{file} holds no arm of a leaderboard ({reason}); publish it again.") from error
    other = next((arm for arm, _ in runs if arm != file.stem), None)
    if other is not None:
        raise SettingError(
            f"{file} holds runs of {other}, which would count twice beside its own file; remove it, or name it "
            f"{other}.json."
        )
    twice = next((seed for index, (_, seed) in enumerate(runs) if (file.stem, seed) in runs[:index]), None)
    if twice is not None:
        raise SettingError(f"{file} holds seed {twice} twice, which would count as two; publish it again.")
    return entry


def _check_compared(study: Mapping[str, Any], entries: Mapping[str, Any], place: Path) -> None:
    """Refuses a setting that compares an arm of which neither a definition nor a file is there."""
    named = {one[role] for one in (study.get("primary") or {"comparisons": []})["comparisons"] for role in _ROLES}
    missing = sorted(({study["reference"]} | named) - set(study["arms"]) - set(entries))
    if missing:
        raise SettingError(
            f"{place} compares with {missing[0]}, of which there is no {missing[0]}.json; put it back, or publish the "
            "study again."
        )


def _tuned(entry: Mapping[str, Any]) -> RateChoice:
    return rate_choice_of(entry["tuned"])


def _provenance(runs: list[RunResult]) -> dict[str, Any]:
    """Returns what the runs have in common, and what they took together."""
    return {
        "commit": sorted({run.commit for run in runs if run.commit}),
        "settings": list(runs[0].settings),
        "seeds": [run.seed for run in runs],
        "hardware": sorted({run.device for run in runs}),
        "versions": dict(runs[0].versions),
        "seconds": round(sum(sum(run.seconds.values()) for run in runs), 1),
        "tokens": sum(run.tokens or 0 for run in runs),
    }


def _plain(mean: Mean) -> list[float | int | None]:
    """Returns value, bounds (None for a single seed) and seeds; JSON knows no NaN."""
    if mean.n == 1:
        return [mean.value, None, None, 1]
    return [mean.value, mean.low, mean.high, mean.n]
