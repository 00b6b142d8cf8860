"""One process group an output folder."""

import fcntl
from pathlib import Path
from typing import IO

from ngrpo.errors import SettingError

_FILE = ".lock"


def lock(folder: Path, setting: str = "hydra.run.dir") -> IO[str]:
    """Takes the folder for this process until the file is closed or the process ends, killed or not.

    Args:
        folder: made if there is none; nothing that is in it changes.
        setting: that names the folder.

    Returns:
        The open lock file; it must be kept.

    Raises:
        SettingError: another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / _FILE).open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise SettingError(
            f"{setting}={folder} is being written by another process; wait for it, or choose another folder."
        ) from error
    return file
