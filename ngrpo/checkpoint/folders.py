"""Checkpoint folders on disk: complete or absent, with a pointer to the latest."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ngrpo.checkpoint import saved_runs
from ngrpo.checkpoint.manifest import FORMAT, Damaged, Manifest, read, sequence_of, verify, write, written_at
from ngrpo.checkpoint.shards import Unsafe, check_shards
from ngrpo.errors import SettingError
from ngrpo.utils.atomic_write import remove

FOLDER = "checkpoints"
STATE = "state.ckpt"
_POINTER = "latest"
_UNFINISHED, _OLD = ".tmp", ".old"
_COMPLETE = re.compile(r"iteration-\d+")


def publish(temporary: Path, final: Path, run: Mapping[str, str]) -> None:
    """Makes a finished checkpoint visible: everything on disk, then the name, then the pointer.

    Args:
        temporary: the folder that was written.
        final: its final name beside it; replaced if it exists.
        run: what the checkpoint belongs to, see `ngrpo.checkpoint.compatibility.identity`.
    """
    last = max((sequence_of(folder) or 0 for folder in complete_checkpoints(final.parents[1])), default=0)
    write(temporary, run, last + 1)
    for path in [*temporary.rglob("*"), temporary]:
        _sync(path)
    replaced = final.with_name(final.name + _OLD)
    if os.path.lexists(final):
        remove(replaced)
        final.rename(replaced)
    temporary.rename(final)
    pointer = final.parent / _POINTER
    aside = pointer.with_suffix(_UNFINISHED)
    aside.write_text(final.name)
    _sync(aside)
    os.replace(aside, pointer)
    _sync(final.parent)
    remove(replaced)


def discard(folder: Path) -> None:
    """Removes a checkpoint; it stops being complete at once, by a rename."""
    # Not the name of a checkpoint being written, perhaps to replace this one.
    doomed = folder.with_name(folder.name + _OLD)
    remove(doomed)
    folder.rename(doomed)
    remove(doomed)


def temporary_folder(final: Path) -> Path:
    """Returns an empty folder to write a checkpoint into; what killed processes left of others is removed."""
    for left in [*final.parent.glob(f"*{_UNFINISHED}"), *final.parent.glob(f"*{_OLD}")]:
        remove(left)
    temporary = final.with_name(final.name + _UNFINISHED)
    temporary.mkdir(parents=True)
    return temporary


def complete_checkpoints(run: Path) -> list[Path]:
    """Returns the complete checkpoints of a run in the order in which they were written.

    That is not the order of their iterations if a run was resumed, in its own folder, from an earlier one; nor that of
    any clock, which may have been set back.
    """
    folders = (run / FOLDER).glob("iteration-*")
    return sorted(filter(_is_complete, folders), key=lambda folder: (sequence_of(folder) or 0, iteration_of(folder)))


def open_checkpoint(folder: Path) -> Manifest:
    """Returns the manifest of a checkpoint that is as it was written.

    Raises:
        SettingError: it is damaged, of another version of this program, or would run code; of a damaged one, the last
            good one before it is named.
    """
    try:
        manifest = read(folder)
        if manifest.format != FORMAT:
            raise SettingError(
                f"ckpt={folder} has the format {manifest.format} of another version of this program, which reads format"
                f" {FORMAT}; resume with the version that wrote it, or start a new run from its exported model."
            )
        verify(folder, manifest)
        check_shards(folder / STATE)
    except Unsafe as error:
        raise SettingError(f"ckpt={folder} would run code when it is loaded ({error}); do not use it.") from error
    except Damaged as error:
        before = _good_before(folder)
        remedy = "there is no good one before it, so start again with ckpt=null"
        remedy = f"the last good one before it is ckpt='{before}'" if before else remedy
        raise SettingError(f"ckpt={folder} is damaged ({error}); {remedy}.") from error
    return manifest


def _good_before(folder: Path) -> Path | None:
    """Returns the newest intact checkpoint of the same run that was written before ``folder``."""
    older = [path for path in complete_checkpoints(folder.parents[1]) if iteration_of(path) < iteration_of(folder)]
    return next((path for path in reversed(older) if _intact(path)), None)


def _intact(folder: Path) -> bool:
    try:
        manifest = read(folder)
        verify(folder, manifest)
    except Damaged:
        return False
    return manifest.format == FORMAT


def how_to_resume(run: Path) -> str:
    """Returns a clause that says how to resume a run that ended early."""
    folders = complete_checkpoints(run)
    if not folders:
        return "there is no checkpoint to resume from"
    return f"the last checkpoint is of iteration {iteration_of(folders[-1])}: resume with ckpt={run}"


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
        found = _latest_of(run) or max(filter(None, runs), key=lambda folder: _when(folder, outputs), default=None)
    if found is None:
        where = outputs if ckpt == "latest" else ckpt
        raise SettingError(f"ckpt={ckpt} finds no complete checkpoint in {where}; give a run's folder, or ckpt=null.")
    return found


def _latest_of(run: Path) -> Path | None:
    """Returns what the pointer names, unless a crash came between the name of a newer checkpoint and the pointer."""
    folders = complete_checkpoints(run)
    pointer = run / FOLDER / _POINTER
    named = run / FOLDER / pointer.read_text().strip() if pointer.is_file() else None
    if named in folders and sequence_of(named) is None:  # damaged, which `open_checkpoint` will say
        return named
    return folders[-1] if folders else None


def _when(folder: Path, outputs: Path) -> tuple[int, int]:
    """Returns when a checkpoint's run saved last; the clock counts between runs that are on no list."""
    return saved_runs.save_rank(outputs, folder.parents[1]), written_at(folder)


def _is_complete(folder: Path) -> bool:
    """Says whether a folder has a checkpoint's final name, which it is given when it is finished."""
    return _COMPLETE.fullmatch(folder.name) is not None and folder.is_dir()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
