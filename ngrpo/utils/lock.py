"""The lock of an output folder: one process group at a time."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ngrpo.errors import SettingError

_FILE = ".lock"
_OWN = ("checkpoints", "record", "model", "bad_steps")
"""Folders of a run in which it replaces and removes what is outdated."""


class FolderInUse(SettingError):
    """A folder is another process's, whose files this one must leave alone, the log among them."""


def lock(folder: Path, setting: str = "hydra.run.dir") -> IO[str]:
    """Takes the folder for this process until the file is closed or the process ends, killed or not.

    Args:
        folder: made if there is none; nothing that is in it changes.
        setting: that names the folder.

    Returns:
        The open lock file; it must be kept.

    Raises:
        FolderInUse: another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / _FILE).open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise FolderInUse(
            f"{setting}={folder} is being written by another process; wait for it, or choose another folder."
        ) from error
    return file


@contextmanager
def in_turn(folder: Path) -> Iterator[None]:
    """Waits until no other process is in this block for the folder, which is made if there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _FILE).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def check_own_folders(run_dir: Path) -> None:
    """Refuses links in place of a run's own folders: another run may hold what they lead to, and would lose it.

    Raises:
        SettingError: there is one.
    """
    for folder in (run_dir / name for name in _OWN):
        if folder.is_symlink():
            raise SettingError(
                f"hydra.run.dir={run_dir} holds a link, {folder} to {folder.readlink()}, and a run removes nothing "
                "through a link; take it away, or let hydra.run.dir itself lie where there is room."
            )
