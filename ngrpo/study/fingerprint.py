"""What a study was begun with: its finished runs count only for the same settings."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ngrpo.errors import SettingError
from ngrpo.study.definition import StudyConfig, as_json
from ngrpo.study.results import read, write

BEGUN = "study.json"
_FREE_OF_ARMS = ("seeds", "against")
_FREE = ("keep_files", "tune.rates", "levels.paths", "levels.problems", "levels.samples", "levels.low", "levels.high")


def go_on(study: StudyConfig, out: Path) -> None:
    """Writes the settings into a folder that has none, else checks that they are the same.

    Arms may come and go, have other numbers of seeds and be compared with others; the learning rates that are tried may
    change, too.

    Raises:
        SettingError: a setting that finished runs depend on has another value.
    """
    file, after = out / BEGUN, dict(_walk(as_json(study)))
    before = read(file)
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            raise SettingError(
                f"{name}={json.dumps(after[name])} is not the {json.dumps(before[name])} that the study in {out} was "
                "begun with; put it back, or begin another with --out FOLDER."
            )
    write(file, before | after)


def _walk(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the settings that finished runs depend on, by their whole names."""
    for name, value in settings.items():
        whole = prefix + name
        if isinstance(value, Mapping):
            yield from _walk(value, f"{whole}.")
        elif whole not in _FREE and not (prefix.startswith("arms.") and name in _FREE_OF_ARMS):
            yield whole, value
