"""The fields of a JSON object, each read with its type and range, and none left over."""

import json
import math
from collections.abc import Mapping
from typing import Any

from ngrpo.errors import SettingError
from ngrpo.utils.given_values import shown

_MOST_NESTED = 32
"""Levels of a body: more than any request has, and far from what Python's reader recurses into."""


def read_object(content: bytes) -> "Fields":
    """Returns the fields of a body.

    Raises:
        SettingError: it is no JSON object, or has numbers that are none.
    """
    try:
        found = json.loads(content, parse_constant=_no_number, parse_float=_finite)
    except RecursionError as error:
        raise SettingError("the body is nested too deeply; send a flatter one.") from error
    except (ValueError, UnicodeDecodeError) as error:
        raise SettingError(f"the body is no JSON ({str(error)[:80]}); send a JSON object.") from error
    if not isinstance(found, dict):
        raise SettingError(f"the body is {shown(found)}; send a JSON object.")
    # Each level takes a bracket: counting them is quick, and most bodies have few.
    if content.count(b"[") + content.count(b"{") > _MOST_NESTED and _depth(found) > _MOST_NESTED:
        raise SettingError("the body is nested too deeply; send a flatter one.")
    return Fields(found)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        _no_number(text[:20])
    return value


def _depth(found: Any) -> int:
    """Returns the levels of nested lists and objects, without recursion."""
    deepest, waiting = 0, [(found, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        if isinstance(node, dict | list) and depth <= _MOST_NESTED:
            inner = node.values() if isinstance(node, dict) else node
            waiting += [(one, depth + 1) for one in inner if isinstance(one, dict | list)]
    return deepest


class FieldError(SettingError):
    """A field cannot be used.

    Attributes:
        name: of it.
    """

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(sentence)
        self.name = name


class Fields:
    """Reads the fields of an object; `end` refuses those that nobody has read.

    Args:
        found: the object.
        path: of it in the body, for what is said.
    """

    def __init__(self, found: Mapping[str, Any], path: str = "") -> None:
        self._found = dict(found)
        self._path = path
        self._known: list[str] = []

    def take(self, name: str) -> Any:
        """Returns a field as it is; None where it is absent, or null."""
        self._known.append(name)
        return self._found.pop(name, None)

    def has(self, name: str) -> bool:
        """Says whether there is a field that has not been read."""
        return self._found.get(name) is not None

    def whole(self, name: str, least: int, most: int, default: int) -> int:
        """Returns a whole number in [least, most]."""
        value = self.take(name)
        if value is None:
            return default
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(name, value, f"give a whole number in [{least}, {most}]")
        return value

    def real(self, name: str, least: float, most: float, default: float) -> float:
        """Returns a number in [least, most]."""
        value = self.take(name)
        if value is None:
            return default
        if type(value) not in (int, float) or not least <= value <= most:
            raise self.wrong(name, value, f"give a number in [{least:g}, {most:g}]")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Returns a boolean."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, value, "give true or false")
        return value

    def text(self, name: str) -> str | None:
        """Returns a text; None where it is absent."""
        value = self.take(name)
        if value is not None and (not isinstance(value, str) or not _is_unicode(value)):
            raise self.wrong(name, value, "give a text")
        return value

    def ids(self, name: str, most: int) -> tuple[int, ...] | None:
        """Returns a list of at most so many token ids; None where it is absent."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > most or not set(map(type, value)) <= {int}:
            raise self.wrong(name, value, f"give a list of at most {most} token ids")
        return tuple(value)

    def objects(self, name: str, most: int) -> "list[Fields]":
        """Returns a list of 1 to so many objects."""
        value = self.take(name)
        if not isinstance(value, list) or not 0 < len(value) <= most or not all(isinstance(o, dict) for o in value):
            raise self.wrong(name, value, f"give a list of 1 to {most} objects")
        return [Fields(one, f"{self._name(name)}[{number}]") for number, one in enumerate(value)]

    def object(self, name: str) -> "Fields | None":
        """Returns an object; None where it is absent."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(name, value, "give an object")
        return Fields(value, self._name(name))

    def rest(self) -> dict[str, Any]:
        """Returns all that has not been read."""
        rest, self._found = self._found, {}
        return rest

    def end(self) -> None:
        """Refuses a field that nobody has read.

        Raises:
            SettingError: there is one.
        """
        for name in self._found:
            raise FieldError(
                self._name(name),
                f"{self._name(name)!r} is not served here; leave it out, or choose one of "
                f"{', '.join(sorted(set(self._known)))}.",
            )

    def wrong(self, name: str, value: Any, remedy: str) -> FieldError:
        """Returns the error of a field."""
        return FieldError(self._name(name), f"{self._name(name)}={shown(value)} cannot be used; {remedy}.")

    def _name(self, name: str) -> str:
        return f"{self._path}.{name[:40]}".lstrip(".")


def _is_unicode(text: str) -> bool:
    """Says whether a text has no half of a surrogate pair, which JSON can write and no tokenizer reads."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
