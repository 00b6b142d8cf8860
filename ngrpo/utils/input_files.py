"""Small files that a user names: read whole, or refused in one sentence."""

import json
import stat
from pathlib import Path
from typing import Any

from ngrpo.errors import SettingError

_MOST_BYTES = 2**31


def check_file(path: Path, name: str) -> None:
    """Refuses what is no ordinary file: one that is missing, a folder, or a pipe, which would be waited for.

    Raises:
        SettingError: with ``name``, what the user calls it.
    """
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SettingError(f"{name} {path} cannot be read ({reason}); give another.") from error
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no ordinary file"
        raise SettingError(f"{name} {path} is {kind}; give a file.")
    if found.st_size > _MOST_BYTES:
        raise SettingError(f"{name} {path} has {found.st_size} bytes, more than {_MOST_BYTES}; give a smaller one.")


def read_text(path: Path, name: str) -> str:
    """Returns the text of a UTF-8 file, without a byte-order mark.

    Raises:
        SettingError: it is no such file.
    """
    check_file(path, name)
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SettingError(f"{name} {path} cannot be read ({error.strerror}); give another.") from error
    except UnicodeDecodeError as error:
        raise SettingError(f"{name} {path} is no UTF-8 text (byte {error.start}); convert it.") from error


def read_json(path: Path, name: str) -> Any:
    """Returns the content of a JSON file.

    Raises:
        SettingError: it is none.
    """
    text = read_text(path, name)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingError(f"{name} {path} is no JSON ({error}); repair or replace it.") from error
