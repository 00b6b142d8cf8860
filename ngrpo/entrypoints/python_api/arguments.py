"""Arguments that the functions share, as they are used, or refused in a sentence."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ngrpo.entrypoints.override_words import check_null, words_of
from ngrpo.errors import SettingError
from ngrpo.utils.given_values import plain, shown


def folder_of(config_dir: Any) -> Path | None:
    """Returns the folder of ``config_dir=``.

    Raises:
        SettingError: it is no folder.
    """
    if config_dir is None:
        return None
    if not isinstance(config_dir, str | Path) or not str(config_dir):
        raise SettingError(f"config_dir={shown(config_dir)} names no folder; give its path, or leave it out.")
    check_null("config_dir", str(config_dir))
    folder = Path(config_dir)
    if not folder.is_dir():
        raise SettingError(f"config_dir={folder} is no folder; give one with yaml files and modules.")
    return folder


def words_given(settings: Mapping[str, Any], overrides: Sequence[Any]) -> list[str]:
    """Returns the settings and, after them, the overrides, as words of the command line.

    Raises:
        SettingError: an override is no text, or a setting has a value that none has.
    """
    for override in overrides:
        if not isinstance(override, str) or not override.strip():
            raise SettingError(
                f"{shown(override)} is no setting; give a text such as 'seed=1', or a keyword such as seed=1."
            )
        check_null("overrides", override)
    return [*words_of(settings), *map(str, overrides)]


def is_on(name: str, value: Any) -> bool:
    """Returns what a switch is set to.

    Raises:
        SettingError: it is neither true nor false.
    """
    given = plain(value)
    if not isinstance(given, int) or given not in (0, 1):
        raise SettingError(f"{name}={shown(value)} is neither true nor false; give one of them.")
    return bool(given)
