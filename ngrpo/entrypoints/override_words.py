"""Settings given as Python values, as words of the command line."""

import re
import reprlib
from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from typing import Any

from ngrpo.config.override_quoting import quoted
from ngrpo.errors import SettingError
from ngrpo.utils.given_values import as_written, shown

_KEY = re.compile(r"[+~]{0,2}[\w.@/:-]+", re.ASCII)
_NAME = "name"
"""The key of a mapping that chooses a preset of the group, beside those that set values."""


def words_of(settings: Mapping[str, Any]) -> list[str]:
    """Returns settings as overrides: presets before what is set on top of them.

    Args:
        settings: by name: ``{"exploration": {"name": "neighbor", "rate": 0.2}, "seed": 1}``.

    Raises:
        SettingError: a name or a value is one that no setting has.
    """
    found = list(_leaves("", settings))
    return [f"{name}={_word(name, value)}" for name, value in sorted(found, key=lambda one: one[0].count("."))]


def _leaves(place: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        _check_key(place, key)
        if place and key == _NAME:
            yield place, value
        elif isinstance(value, Mapping) and value:
            yield from _leaves(f"{place}.{key}".lstrip("."), value)
        else:
            yield f"{place}.{key}".lstrip("."), value


def check_null(name: str, text: str) -> None:
    """Refuses a text with a null character, with which no file can be looked for.

    Raises:
        SettingError: it has one.
    """
    if "\0" in text:
        raise SettingError(f"{name}={shown(text)} holds a null character; take it out.")


def _check_key(place: str, key: Any) -> None:
    if not isinstance(key, str | int) or isinstance(key, bool) or _KEY.fullmatch(str(key)) is None:
        where = f" in {place}" if place else ""
        raise SettingError(f"{key!r}{where} is no name of a setting; write it with letters, digits and underscores.")


def _digits(name: str, value: int | float) -> str:
    """Writes a number, also one of a class of its own, such as an enumeration."""
    try:
        return int.__repr__(value) if isinstance(value, int) else float.__repr__(value)
    except ValueError as error:
        raise SettingError(f"{name}= is an integer of more digits than Python writes; give a smaller one.") from error


def _word(name: str, given: Any) -> str:
    value = as_written(given)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return _digits(name, value)
    if isinstance(value, str | PathLike) and isinstance(text := fspath(value), str):
        check_null(name, text)
        return quoted(str.__str__(text))
    if isinstance(value, list | tuple):
        return f"[{','.join(_word(name, one) for one in value)}]"
    if isinstance(value, Mapping):
        for key in value:
            _check_key(name, key)
        return f"{{{','.join(f'{key}: {_word(name, one)}' for key, one in value.items())}}}"
    raise SettingError(
        f"{name}={reprlib.repr(given)} is of type {type(given).__name__}, which no setting has; give a text, a number, "
        "true or false, None, a list or a mapping."
    )
