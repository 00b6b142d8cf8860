"""Checkpoint folders on disk: complete or absent, with a pointer to the latest."""

import os
import re
from pathlib import Path

from ngrpo.errors import SettingError

FOLDER = "checkpoints"
STATE = "state.ckpt"
_POINTER = "latest"
_COMPLETE = re.compile(r"iteration-\d+")


def publish(temporary: Path, final: Path) -> None:
    """Makes a finished checkpoint visible: everything on disk, then the name, then the pointer.

    Args:
        temporary: the folder that was written.
        final: its final name beside it; replaced if it exists.
    """
    for path in [*temporary.rglob("*"), temporary]:
        _sync(path)
    if final.exists():
        discard(final)
    temporary.rename(final)
    pointer = final.parent / _POINTER
    aside = pointer.with_suffix(".tmp")
    aside.write_text(final.name)
    _sync(aside)
    os.replace(aside, pointer)
    _sync(final.parent)


def discard(folder: Path) -> None:
    """Removes a checkpoint; it stops being complete at once, by a rename."""
    # Not ".tmp": that is the name of a checkpoint being written, perhaps to replace this one.
    doomed = folder.with_name(folder.name + ".old")
    remove(doomed)
    folder.rename(doomed)
    remove(doomed)


def remove(folder: Path) -> None:
    """Deletes a folder and what is in it, if it exists."""
    if not folder.exists():
        return
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def complete(run: Path) -> list[Path]:
    """Returns the complete checkpoints of a run, oldest first."""
    folders = (run / FOLDER).glob("iteration-*")
    return sorted(filter(_is_complete, folders), key=iteration_of)


def iteration_of(folder: Path) -> int:
    """Returns the number of iterations that a checkpoint has behind it."""
    return int(folder.name.removeprefix("iteration-"))


def resolve(ckpt: str, run: Path, outputs: Path) -> Path:
    """Finds the checkpoint that ``ckpt`` means.

    Args:
        ckpt: "latest" (of this run's folder, else of the run under ``outputs`` that saved last), a run's
            folder, or a checkpoint's folder.
        run: this run's folder.
        outputs: the folder that holds the runs.

    Returns:
        The checkpoint's folder.

    Raises:
        SettingError: there is none.
    """
    if ckpt != "latest":
        found = _latest_of(Path(ckpt)) or (Path(ckpt) if _is_complete(Path(ckpt)) else None)
    else:
        runs = (_latest_of(folder.parent) for folder in outputs.glob(f"**/{FOLDER}"))
        found = _latest_of(run) or max(filter(None, runs), key=_written_at, default=None)
    if found is None:
        where = outputs if ckpt == "latest" else ckpt
        raise SettingError(f"ckpt={ckpt} finds no complete checkpoint in {where}; give a run's folder, or ckpt=null.")
    return found


def _latest_of(run: Path) -> Path | None:
    folders = complete(run)
    return folders[-1] if folders else None


def _is_complete(folder: Path) -> bool:
    return _COMPLETE.fullmatch(folder.name) is not None and (folder / STATE).exists()


def _written_at(folder: Path) -> int:
    return (folder / STATE).stat().st_mtime_ns


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
