"""Settings given as Python values, as words of the command line."""

from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from typing import Any

from ngrpo.config.override_quoting import quoted
from ngrpo.errors import SettingError

_NAME = "name"
"""The key of a mapping that chooses a preset of the group, beside those that set values."""


def words_of(settings: Mapping[str, Any]) -> list[str]:
    """Returns settings as overrides: presets before what is set on top of them.

    Args:
        settings: by name: ``{"exploration": {"name": "neighbor", "rate": 0.2}, "seed": 1}``.

    Raises:
        SettingError: a value is of a type that no setting has.
    """
    found = list(_leaves("", settings))
    return [f"{name}={_word(name, value)}" for name, value in sorted(found, key=lambda one: one[0].count("."))]


def _leaves(place: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if place and key == _NAME:
            yield place, value
        elif isinstance(value, Mapping) and value:
            yield from _leaves(f"{place}.{key}".lstrip("."), value)
        else:
            yield f"{place}.{key}".lstrip("."), value


def _word(name: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | PathLike):
        return quoted(str(fspath(value)))
    if isinstance(value, list | tuple):
        return f"[{','.join(_word(name, one) for one in value)}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}: {_word(name, one)}' for key, one in value.items())}}}"
    raise SettingError(
        f"{name}={value!r} is of type {type(value).__name__}, which no setting has; give a text, a number, true or"
        " false, None, a list or a mapping."
    )
