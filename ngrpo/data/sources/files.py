"""Problems in JSON, JSONL and parquet files."""

import codecs
import glob
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from ngrpo.data.sources.base import BOXED_INSTRUCTION, Row
from ngrpo.data.sources.fields import Fields
from ngrpo.errors import SettingError
from ngrpo.input_files import check_file


def _read_json(content: bytes) -> Any:
    return json.loads(content)


def _read_jsonl(content: bytes) -> Any:
    lines = [line for line in content.splitlines() if line.strip()]
    # As one array, a line each, so that an error message counts lines.
    return json.loads(b"[" + b",\n".join(lines) + b"]")


def _read_parquet(content: bytes) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.read_table(pa.BufferReader(content)).to_pylist()


READERS: dict[str, Callable[[bytes], Any]] = {
    ".json": _read_json,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}


def find_files(path: str) -> list[Path]:
    """Return the file at `path`, the data files of that directory, or what matches the pattern, sorted."""
    place = Path(path).expanduser()
    if place.is_dir():
        return sorted(file for file in place.iterdir() if file.suffix in READERS)
    if place.is_file():
        return [place]
    return sorted(map(Path, glob.glob(str(place), recursive=True)))


def _records(file: Path, content: bytes, setting: str) -> list[dict[str, Any]]:
    if file.suffix not in READERS:
        raise SettingError(f"{setting}={str(file)!r} has an unknown suffix; convert it to one of {', '.join(READERS)}.")
    try:
        records = READERS[file.suffix](content)
    # The last of them are Arrow's of damaged parquet.
    except (ValueError, RecursionError, OSError, NotImplementedError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise SettingError(f"{setting}={str(file)!r} cannot be read ({reason}); mend or replace the file.") from error
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise SettingError(f"{setting}={str(file)!r} must hold a list of objects, one a problem; convert it.")
    return records


class FileSource:
    """The rows of one or more files, read whole; a row's key is its number over all files.

    An epoch is a permutation of the rows drawn from (seed, epoch).

    Args:
        files: existing files with a suffix in `READERS`.
        fields: which fields hold the question and the answer.
        setting: the setting that named the files, for messages.

    Raises:
        SettingError: a file cannot be read, or has no row, or lacks the fields.
    """

    instruction: str | None = BOXED_INSTRUCTION
    in_memory = True
    endless = False

    def __init__(self, files: Sequence[Path], fields: Fields | None = None, setting: str = "data.path") -> None:
        fields = fields or Fields()
        digest = hashlib.sha256()
        records: list[dict[str, Any]] = []
        for file in files:
            check_file(file, f"{setting}: the file")
            content = file.read_bytes()
            digest.update(content)
            records += _records(file, content.removeprefix(codecs.BOM_UTF8), setting)
        # Names without directories: the same files may be resumed from another place.
        names = ",".join(file.name for file in files)
        if not records:
            raise SettingError(f"{setting}={names!r} has no row; give a file with problems.")
        available = {name for record in records for name in record}
        fields.check(available, f"{setting}={names!r}", setting.rpartition(".")[0])
        self.identity = f"{names}@sha256:{digest.hexdigest()[:16]}"
        self._rows = [fields.row(key, record) for key, record in enumerate(records)]

    def rows(self, start: int = 0) -> Iterator[Row]:
        """Yield the rows in file order."""
        return islice(self._rows, start, None)

    def epoch_rows(self, seed: int, epoch: int, start: int = 0) -> Iterator[Row]:
        """Yield the rows in the order of the epoch's permutation."""
        order = list(range(len(self._rows)))
        Random(f"{seed}/{epoch}").shuffle(order)
        return (self._rows[index] for index in order[start:])
