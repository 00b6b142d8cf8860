"""The folder that an export is written to: new or empty."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ngrpo.checkpoint.folders import FOLDER
from ngrpo.errors import SettingError
from ngrpo.utils.atomic_write import remove


def check_target(target: Path) -> None:
    """Refuses a target that something is in the place of, or in the way of.

    Raises:
        SettingError: the model cannot be written there.
    """
    try:
        why = _hindrance(target)
    except OSError as error:
        why = f"cannot be looked at ({error.strerror})"
    if why is not None:
        raise SettingError(f"TARGET={target} {why}; give a folder that is not there yet, or an empty one.")


def _hindrance(target: Path) -> str | None:
    if target.is_symlink():
        return f"is a link to {target.readlink()}"
    if target.exists() and not target.is_dir():
        return "is a file"
    if target.is_dir() and any(target.iterdir()):
        return "is a folder with files in it"
    parents = target.resolve().parents
    if FOLDER in (parent.name for parent in parents):
        return "lies among the checkpoints of a run"
    place = target if target.is_dir() else next(parent for parent in parents if parent.exists())
    if not place.is_dir():
        return f"lies in {place}, which is a file"
    return None if _writable(place) else "is a place where nothing may be written"


def _writable(folder: Path) -> bool:
    """Tries: what the permissions say holds neither for root nor on every file system."""
    probe = _aside(folder / "probe")
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}-{os.getpid()}")


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Gives a folder to write into: an empty target, or one that takes its name when the block ends well."""
    target = target.resolve()
    there = target.is_dir()
    folder = target if there else _aside(target)
    folder.mkdir(parents=True, exist_ok=there)
    try:
        yield folder
    except BaseException:
        for left in folder.iterdir() if there else [folder]:
            remove(left)
        raise
    if not there:
        folder.rename(target)
