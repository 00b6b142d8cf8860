"""The source that the value of ``data.path`` names."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeGuard

from ngrpo.data.sources.base import ProblemSource, Split
from ngrpo.data.sources.endless import GeneratedSource
from ngrpo.data.sources.fields import Fields
from ngrpo.data.sources.files import READERS, FileSource, check_layout, check_one_split, find_files
from ngrpo.data.sources.generated import generated_source
from ngrpo.data.sources.hub import HubSource
from ngrpo.data.sources.records import Records, RecordSource
from ngrpo.errors import SettingError

_HUB_NAME = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(?::(?P<configuration>[\w.+-]+))?(?:@(?P<split>[\w.-]+))?")
_HUB_SPLIT: dict[Split, str] = {"train": "train", "held_out": "test"}


DataPath = str | Sequence[str] | Records | ProblemSource
"""What ``data.path`` and the like may be: a name, files, or an object of the user's."""


def open_source(
    path: DataPath,
    split: Split = "train",
    fields: Fields | None = None,
    setting: str = "data.path",
) -> ProblemSource:
    """Open what `path` names.

    Args:
        path: ``"demo"``; ``"demo:2-6"`` or ``"demo:2-6@validation"`` for harder problems of 2 to 6 calculations;
            ``"countdown"`` or ``"countdown:3-5"`` for puzzles of 3 to 5 numbers; a file, a directory, a pattern, or a
            list of these; or ``org/name``, ``org/name:configuration``, ``org/name@split`` or
            ``org/name:configuration@split`` on the hub;
            or an object: `Records`, or a `ProblemSource` for what does not fit into memory.
        split: which part of generated problems, or which split on the hub (``train`` or ``test``) where `path` names
            none; files have none.
        fields: which fields hold the question and the answer.
        setting: the setting that holds `path`, for messages.

    Raises:
        SettingError: there is no such source.
    """
    if not _is_name(path):
        return _own(path, fields or Fields(), setting)
    if source := _generated(path, split, setting):
        if fields is not None and fields.keep:
            raise SettingError(
                f"{setting.rpartition('.')[0]}.keep_fields={list(fields.keep)} names fields of a file, and "
                f"{setting}={path} is generated; take it out, or give a file."
            )
        return source
    parts = [path] if isinstance(path, str) else path
    try:
        found = [find_files(part) for part in parts if part.strip()]
    except (OSError, ValueError, RuntimeError) as error:  # too long, a null byte, the home of an unknown user
        raise SettingError(f"{setting}={path!r} is no path ({error}); give that of a file.") from error
    for part in filter(str.strip, parts):
        check_layout(part, setting)
    if found and all(found) and len(found) == len(parts):
        for part, files in zip(parts, found, strict=True):
            check_one_split(part, files, setting)
        return FileSource([file for files in found for file in files], fields, setting)
    if hub := _hub_name(path):
        return HubSource(hub["name"], hub["configuration"], hub["split"] or _HUB_SPLIT[split], fields, setting)
    shown = path if isinstance(path, str) else list(path)
    raise SettingError(
        f"{setting}={shown!r} names no source; give 'demo', existing {', '.join(READERS)} files (a file,"
        " a directory, a pattern or a list), or a hub data set 'org/name' or 'org/name:configuration@split'."
    )


def _is_name(path: object) -> TypeGuard[str | Sequence[str]]:
    return isinstance(path, str) or (isinstance(path, list | tuple) and all(isinstance(part, str) for part in path))


def _own(made: object, fields: Fields, setting: str) -> ProblemSource:
    if isinstance(made, ProblemSource):
        if fields.keep:
            raise SettingError(
                f"{setting.rpartition('.')[0]}.keep_fields={list(fields.keep)} is for records, and {setting}="
                f"{type(made).__name__} makes problems; take it out, and put the fields into Problem.columns."
            )
        return made
    if isinstance(made, Mapping):  # such as the splits of a hub data set
        keys = ", ".join(map(str, list(made)[:5]))
        raise SettingError(
            f"{setting} is a mapping with {keys or 'no keys'}, which has no rows by number; give one of its values, a "
            "path, or a class of yours as its _target_."
        )
    if isinstance(made, Records):
        return RecordSource(made, fields, setting)
    raise SettingError(
        f"{setting} is a {type(made).__name__}, which has no rows by number; give an object with __len__ and "
        "__getitem__, a list of dictionaries, or a ngrpo.data.sources.ProblemSource."
    )


def _generated(path: str | Sequence[str], split: Split, setting: str) -> GeneratedSource | None:
    try:
        return generated_source(path, split)
    except ValueError as error:
        raise SettingError(f"{setting}={path} names no problems: {error}.") from error


def hub_data_set(path: object) -> str | None:
    """Returns the name on the Hub of the data set that ``data.path`` names; None where it names something else."""
    found = _hub_name(path) if isinstance(path, str) else None
    return None if found is None else found["name"]


def _hub_name(path: str | Sequence[str]) -> re.Match[str] | None:
    if not isinstance(path, str) or Path(path).suffix in READERS or Path(path).exists():
        return None
    return _HUB_NAME.fullmatch(path)
