"""The manifest of a checkpoint, by which damage and foreign checkpoints are noticed before anything is loaded."""

import hashlib
import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path

FORMAT = 2
"""Raised whenever what a checkpoint holds changes its meaning, or what the run would draw next. 2: finer random numbers
(`ngrpo.exploration.random`)."""

_FILE = "manifest.json"


@dataclass(frozen=True)
class FileEntry:
    """A file of a checkpoint: its size in bytes and the SHA-256 of its content."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of ``manifest.json``.

    Attributes:
        format: `FORMAT` of the program that wrote it.
        written_ns: when, in nanoseconds since 1970; clocks are set back, so nothing within a run is ordered by it.
        files: by path relative to the checkpoint.
        run: what the checkpoint belongs to (`ngrpo.checkpoint.compatibility.identity`).
        sequence: number of the checkpoint among those of its run's folder, in the order in which they were written.
    """

    format: int
    written_ns: int
    files: Mapping[str, FileEntry]
    run: Mapping[str, str]
    sequence: int = 0


_FIELDS = {field.name for field in fields(Manifest)}


class Damaged(Exception):
    """A checkpoint is not as it was written; the message says where, as a clause."""


def write(folder: Path, run: Mapping[str, str], sequence: int = 0) -> None:
    """Writes the manifest of a folder whose other files are finished; see `Manifest` for the arguments."""
    manifest = Manifest(FORMAT, time.time_ns(), _entries(folder), run, sequence)
    (folder / _FILE).write_text(json.dumps(asdict(manifest), indent=1) + "\n")


def read(folder: Path) -> Manifest:
    """Reads the manifest.

    Raises:
        Damaged: there is none that can be read.
    """
    try:
        made = json.loads((folder / _FILE).read_text())
        files = {name: FileEntry(**entry) for name, entry in made.pop("files").items()}
        known = {name: made[name] for name in _FIELDS & made.keys()}  # another version may have more, and says so
        return Manifest(files=files, **known)
    except FileNotFoundError as error:
        raise Damaged(f"it has no {_FILE}") from error
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise Damaged(f"its {_FILE} cannot be read") from error


def verify(folder: Path, manifest: Manifest) -> None:
    """Compares sizes, then contents.

    Raises:
        Damaged: a file is missing, cut short or changed.
    """
    for name, entry in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise Damaged(f"{name} is missing")
        if path.stat().st_size != entry.bytes:
            raise Damaged(f"{name} has {path.stat().st_size} bytes instead of {entry.bytes}")
    found = _entries(folder)
    for name, entry in manifest.files.items():
        if found[name] != entry:
            raise Damaged(f"the content of {name} has changed")


def written_at(folder: Path) -> int:
    """Returns when a checkpoint was written, in nanoseconds since 1970; 0 if its manifest is gone."""
    try:
        return read(folder).written_ns
    except Damaged:
        return 0


def sequence_of(folder: Path) -> int | None:
    """Returns the number of a checkpoint in the order of writing; None if its manifest is gone."""
    try:
        return read(folder).sequence
    except Damaged:
        return None


def _entries(folder: Path) -> dict[str, FileEntry]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != _FILE]
    with ThreadPoolExecutor(4) as threads:  # hashing releases the interpreter, and shards are many
        entries = threads.map(_entry, paths)
        return {str(path.relative_to(folder)): entry for path, entry in zip(paths, entries, strict=True)}


def _entry(path: Path) -> FileEntry:
    with path.open("rb") as file:
        return FileEntry(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())
