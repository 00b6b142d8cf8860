"""Checkpoint folders on disk: complete or absent, with a pointer to the latest."""

import os
from pathlib import Path

from ngrpo.errors import SettingError

FOLDER = "checkpoints"
STATE = "state.ckpt"
_POINTER = "latest"


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
    doomed = folder.with_name(folder.name + ".tmp")
    if folder != doomed:
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
    folders = (run / FOLDER).glob("iteration=*")
    return sorted((f for f in folders if f.suffix != ".tmp"), key=iteration_of)


def iteration_of(folder: Path) -> int:
    """Returns the number of iterations that a checkpoint has behind it."""
    return int(folder.name.removeprefix("iteration="))


def resolve(ckpt: str, run: Path, outputs: Path) -> Path:
    """Finds the checkpoint that ``ckpt`` means.

    Args:
        ckpt: "latest" (of this run's folder, else of the run under ``outputs`` that saved last), a run's folder, or
            a checkpoint's folder.
        run: this run's folder.
        outputs: the folder that holds the runs.

    Returns:
        The checkpoint's folder.

    Raises:
        SettingError: there is none.
    """
    if ckpt != "latest":
        found = _latest_of(Path(ckpt)) or (Path(ckpt) if (Path(ckpt) / STATE).exists() else None)
    else:
        pointers = sorted(outputs.glob(f"**/{FOLDER}/{_POINTER}"), key=lambda p: p.stat().st_mtime_ns, reverse=True)
        found = _latest_of(run) or next(filter(None, (_latest_of(p.parent.parent) for p in pointers)), None)
    if found is None:
        where = outputs if ckpt == "latest" else ckpt
        raise SettingError(f"ckpt={ckpt} finds no complete checkpoint in {where}; give a run's folder, or ckpt=null.")
    return found


def _latest_of(run: Path) -> Path | None:
    """The pointer's checkpoint; the newest complete one if a crash came between rename and pointer."""
    folders = complete(run)
    return folders[-1] if folders else None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
