"""The fingerprint of a study: the settings that its finished runs were made with, and for which alone they count."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ngrpo.errors import SettingError
from ngrpo.study.definition import StudyConfig, as_json, current_maker
from ngrpo.study.results import read, write

FINGERPRINT = "study.json"
"""The file in a study's folder."""

_FREE_OF_ARMS = ("seeds", "against", "strengths")
_LEVELS = ("paths", "problems", "samples", "low", "high", "gain", "unsolved")
_FREE = ("keep_files", "reference", "tune.rates", *(f"levels.{name}" for name in _LEVELS))


def check_or_write_fingerprint(study: StudyConfig, out: Path) -> None:
    """Writes the settings into a folder without a fingerprint, else checks that they are the same.

    Raises:
        SettingError: see `check_fingerprint`.
    """
    before = check_fingerprint(study, out)
    write(out / FINGERPRINT, before | dict(_walk(as_json(study))))


def check_fingerprint(study: StudyConfig, out: Path) -> dict[str, Any]:
    """Checks that the settings in a folder's fingerprint are the study's; returns them, none without a fingerprint.

    Arms may be added and removed, have other numbers of seeds and be compared with others, such as with another
    reference; the learning rates that are tried may change, too.

    Raises:
        SettingError: a setting that finished runs depend on has another value.
    """
    before, after = read(out / FINGERPRINT), dict(_walk(as_json(study)))
    if "make_model" in before:
        before["make_model"] = current_maker(before["make_model"])
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            raise SettingError(
                f"{name}={json.dumps(after[name])} is not the {json.dumps(before[name])} that the study in {out} was "
                "started with; put it back, or start another with --out FOLDER."
            )
    return before


def differing(now: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yields what finished runs depend on and differs between two definitions: name and both values as JSON."""
    after, earlier = dict(_walk(now)), dict(_walk(before))
    for name in sorted(after.keys() & earlier.keys()):
        if after[name] != earlier[name]:
            yield name, json.dumps(after[name]), json.dumps(earlier[name])


def _walk(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the settings that finished runs depend on, by their whole names."""
    for name, value in settings.items():
        whole = prefix + name
        if isinstance(value, Mapping):
            yield from _walk(value, f"{whole}.")
        elif whole not in _FREE and not (prefix.startswith("arms.") and name in _FREE_OF_ARMS):
            yield whole, value
