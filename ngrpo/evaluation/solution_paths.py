"""The solution path of a response, by which responses that reason alike are recognised."""

import re
from collections.abc import Callable, Mapping

from ngrpo.data.word_problems.story_words import NUMBERS
from ngrpo.errors import SettingError
from ngrpo.rewards.answers.boxed import last_boxed
from ngrpo.rewards.answers.expression import parse

_CALCULATION = re.compile(r"\d+[-+*/]\d+=-?\d+")
_SIGNS = str.maketrans({"\u00d7": "*", "\u00f7": "/", "\u2212": "-"})
_NUMBERS: Mapping[str, str] = {word: str(number) for number, word in enumerate(NUMBERS)}
_WORD = re.compile(r"[a-z]+")
_SPECIAL = re.compile(r"<\|[^|<>]*\|>")


def calculations(text: str) -> str:
    """Returns the calculations written in a response in their order, e.g. ``8*3=24 24+2=26``; "" without any.

    A response that answers at once has a path of its own, the one without calculations.
    """
    return " ".join(_CALCULATION.findall("".join(text.translate(_SIGNS).split())))


def words(text: str) -> str:
    """Returns a response's words: lower case, small numbers in digits, one space between, no special tokens."""
    plain = _WORD.sub(lambda found: _NUMBERS.get(found[0], found[0]), _SPECIAL.sub(" ", text).lower())
    return " ".join(plain.split())


def expression(text: str) -> str:
    """Returns the form of the expression in a response's last box, the same whatever its order; "" without one."""
    boxed = last_boxed(text)
    made = None if boxed is None else parse(boxed)
    return "" if made is None else made.form


_KINDS: Mapping[str, Callable[[str], str]] = {"calculations": calculations, "expression": expression, "text": words}


def normaliser(kind: str) -> Callable[[str], str]:
    """Returns the function from a response to its solution path: equal results mean equal paths.

    Raises:
        SettingError: there is no such kind.
    """
    if kind not in _KINDS:
        raise SettingError(f"path={kind} is not known; choose one of {', '.join(_KINDS)}.")
    return _KINDS[kind]
