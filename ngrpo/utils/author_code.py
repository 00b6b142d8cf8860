"""The test for errors that come out of the user's own code, whose author needs the traceback."""

import sysconfig
import traceback
from pathlib import Path

_PROGRAM = Path(__file__).resolve().parents[2]
_KNOWN = tuple(
    f"{path}/"
    for path in (
        *(str(_PROGRAM / name) for name in ("ngrpo", "callbacks", "scripts")),
        *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    )
)


def from_author(error: BaseException) -> bool:
    """Says whether a function outside this program, Python and the installed packages was running."""
    files = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(not file.startswith(("<", *_KNOWN)) for file in files)
