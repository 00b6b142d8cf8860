"""The list of the runs in an outputs folder, in the order in which they saved last."""

import fcntl
import os
from pathlib import Path

from ngrpo.utils.atomic_write import write_text

_FILE = ".saved"


def record_save(outputs: Path, run: Path) -> None:
    """Puts a run at the end of the folder's list of runs that have saved; one that lies elsewhere is on no list."""
    outputs, run = outputs.resolve(), run.resolve()
    if not run.is_relative_to(outputs):
        return
    name = str(run.relative_to(outputs))
    handle = os.open(outputs, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # other runs save as well
        others = [other for other in _listed(outputs) if other != name]
        write_text(outputs / _FILE, "".join(f"{one}\n" for one in [*others, name]))
    finally:
        os.close(handle)


def save_rank(outputs: Path, run: Path) -> int:
    """Returns a number that is higher for a run that saved later; -1 for one that is not on the folder's list."""
    outputs, run = outputs.resolve(), run.resolve()
    listed = _listed(outputs)
    name = str(run.relative_to(outputs)) if run.is_relative_to(outputs) else ""
    return listed.index(name) if name in listed else -1


def _listed(outputs: Path) -> list[str]:
    file = outputs / _FILE
    return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
