"""Problems in JSON, JSONL and parquet files."""

import glob
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ngrpo.data.sources.fields import Fields
from ngrpo.data.sources.records import RowsInMemory
from ngrpo.errors import SettingError, first_line
from ngrpo.utils.given_values import as_written
from ngrpo.utils.input_files import check_file


def _decoded(content: bytes) -> str:
    """Returns the text of a JSON file, which may be UTF-8, UTF-16 or UTF-32, with or without a byte-order mark."""
    return content.decode(json.detect_encoding(content)).removeprefix("\ufeff")


def _read_json(content: bytes) -> Any:
    return json.loads(_decoded(content))


def _read_jsonl(content: bytes) -> Any:
    # Not splitlines, which also splits at characters that JSON permits in texts.
    lines = [line for line in _decoded(content).replace("\r\n", "\n").split("\n") if line.strip()]
    # As one array, a line each, so that an error message counts lines.
    return json.loads("[" + ",\n".join(lines) + "]")


NARROW_FLOATS: dict[str, type[np.floating[Any]]] = {
    "halffloat": np.float16, "float": np.float32, "float16": np.float16, "float32": np.float32,
}  # fmt: skip
"""By Arrow's names and those of hub data sets: in Python's floats their 0.1 would be 0.10000000149011612."""


def _read_parquet(content: bytes) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(pa.BufferReader(content))
    for index, field in enumerate(table.schema):
        if kind := NARROW_FLOATS.get(str(field.type)):
            written = [None if one is None else as_written(kind(one)) for one in table.column(index).to_pylist()]
            table = table.set_column(index, field.name, pa.array(written, pa.float64()))
    return table.to_pylist()


READERS: dict[str, Callable[[bytes], Any]] = {
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}


_SAVED = ("dataset_dict.json", "dataset_info.json")
_LOOKED_AT = 1000
"""Files below a directory, which may be somebody's home."""

_SPLITS = {
    "train": {"train", "training"},
    "validation": {"validation", "valid", "val", "dev"},
    "test": {"test", "testing", "eval", "evaluation"},
}


def find_files(path: str) -> list[Path]:
    """Return the file at `path`, the data files of that directory, or what matches the pattern, sorted."""
    place = Path(path).expanduser()
    if place.is_dir():
        return sorted(file for file in place.iterdir() if file.suffix in READERS)
    if place.is_file():
        return [place]
    return sorted(map(Path, glob.glob(str(place), recursive=True)))


def check_layout(path: str, setting: str) -> None:
    """Refuses a directory whose own files are none of its rows: of ``save_to_disk``, or one with folders alone.

    Args:
        path: a file, a directory or a pattern.
        setting: the setting that holds `path`, for messages.

    Raises:
        SettingError: says how to read it.
    """
    place = Path(path).expanduser()
    if any((place / name).is_file() for name in _SAVED):
        raise SettingError(
            f"{setting}={path!r} is of save_to_disk, whose files cannot be read alone; write a split of it with "
            "datasets.load_from_disk(...).to_parquet('rows.parquet'), and give that."
        )
    if not place.is_dir() or find_files(path):
        return
    inside = next((file for file in sorted(islice(place.rglob("*"), _LOOKED_AT)) if file.suffix in READERS), None)
    if inside is not None:
        pattern = str(inside.parent / f"*{inside.suffix}")
        raise SettingError(f"{setting}={path!r} has no rows but in its folders; name them, such as {pattern!r}.")


def check_one_split(path: str, files: Sequence[Path], setting: str) -> None:
    """Refuses a directory whose files are named for several splits: all would be trained on, the test problems too.

    The names are those by which the hub tells the splits of a directory.

    Args:
        path: of a directory; files and patterns may name several splits.
        files: that were found there.
        setting: the setting that holds `path`, for messages.

    Raises:
        SettingError: names a file of each.
    """
    if not Path(path).expanduser().is_dir():
        return
    by_split: dict[str, str] = {}
    for file in files:
        named = sorted(_splits(file.stem))
        if len(named) == 1:  # a name with several, such as train-and-test, says nothing
            by_split.setdefault(named[0], file.name)
    if len(by_split) > 1:
        first = next(iter(by_split.values()))
        raise SettingError(
            f"{setting}={path!r} holds files of several splits ({', '.join(by_split.values())}); name those to read, "
            f"such as {setting}={str(Path(path) / first)!r}, or a list of them."
        )


def _splits(name: str) -> set[str]:
    words = set(re.split(r"[^a-z]+", name.lower()))
    return {split for split, named in _SPLITS.items() if words & named}


def _records(file: Path, content: bytes, setting: str) -> list[dict[str, Any]]:
    if file.suffix not in READERS:
        raise SettingError(f"{setting}={str(file)!r} has an unknown suffix; convert it to one of {', '.join(READERS)}.")
    try:
        records = READERS[file.suffix](content)
    except RecursionError as error:
        raise SettingError(f"{setting}={str(file)!r} is nested too deeply; give a list of objects.") from error
    except Exception as error:  # of a damaged file Arrow raises what it happens to stumble on
        raise SettingError(
            f"{setting}={str(file)!r} cannot be read ({first_line(error)}); fix or replace the file."
        ) from error
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise SettingError(f"{setting}={str(file)!r} must hold a list of objects, one a problem; convert it.")
    return records


def _content(file: Path, setting: str) -> bytes:
    check_file(file, f"{setting}: the file")
    try:
        return file.read_bytes()
    except OSError as error:
        raise SettingError(f"{setting}={str(file)!r} cannot be read ({error.strerror}); make it readable.") from error


class FileSource(RowsInMemory):
    """The rows of one or more files, read whole; a row's key is its number over all files.

    Args:
        files: existing files with a suffix in `READERS`.
        fields: which fields hold the question and the answer.
        setting: the setting that named the files, for messages.

    Raises:
        SettingError: a file cannot be read, or has no row, or lacks the fields.
    """

    def __init__(self, files: Sequence[Path], fields: Fields | None = None, setting: str = "data.path") -> None:
        digest = hashlib.sha256()
        records: list[dict[str, Any]] = []
        for file in files:
            content = _content(file, setting)
            digest.update(content)
            records += _records(file, content, setting)
        # Names without directories: the same files may be resumed from another place.
        names = ",".join(file.name for file in files)
        super().__init__(f"{names}@sha256:{digest.hexdigest()[:16]}", records, fields, setting, repr(names))
