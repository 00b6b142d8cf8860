"""The reader of answers: from the text of an answer to its readings."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache

from sympy import FiniteSet

from ngrpo.rewards.answers.assignments import assigned
from ngrpo.rewards.answers.bases import read_based
from ngrpo.rewards.answers.clock import Ratio, Time, read_ratio, read_time
from ngrpo.rewards.answers.collections import SEPARATOR, Ordered, Unordered, read_list, read_set, read_tuple
from ngrpo.rewards.answers.latex import NotANumber
from ngrpo.rewards.answers.leads import without_lead
from ngrpo.rewards.answers.limits import MAX_DEPTH, MAX_LENGTH, TooLarge
from ngrpo.rewards.answers.matrices import Matrix, read_matrix
from ngrpo.rewards.answers.names import bare, is_name
from ngrpo.rewards.answers.notation import squeeze, tidy
from ngrpo.rewards.answers.quantity import Quantity, read_quantity
from ngrpo.rewards.answers.rationals import rational
from ngrpo.rewards.answers.reading import Answer, Reading, SeveralValues
from ngrpo.rewards.answers.regions import Region, read_named_region, read_region
from ngrpo.rewards.answers.relations import read_exclusion, read_relation
from ngrpo.rewards.answers.scan import depth_of, enclosed, is_balanced, split
from ngrpo.rewards.answers.several import read_several
from ngrpo.rewards.answers.units import split_unit
from ngrpo.rewards.answers.words import holds_choice, is_roman, read_letter, read_words, split_choice

_TEXT = re.compile(r"\\text ?\{([^{}]*)\}")
_SIGNS = re.compile(r"\\(pm|mp)(?![A-Za-z])")
_REAL = re.compile(r" ?\\in ?\\(?:mathbb\{R\}|Reals|R)$")
_CONDITION = re.compile(r"[|:]|\\mid(?![A-Za-z])")


@lru_cache(maxsize=4096)
def read_answer(text: str) -> Answer | None:
    r"""Read the content of a box, or a reference.

    Args:
        text: LaTeX or plain text, e.g. ``"x = \dfrac12"`` or ``"142.0"``.

    Returns:
        The answer; None for what cannot be one: empty text, brackets that do not close, a division by zero.
    """
    if len(text) > MAX_LENGTH:
        return None
    tidied = tidy(text)
    try:
        return _read(tidied)
    except SeveralValues:
        return Answer(squeeze(tidied), ())


def _read(text: str) -> Answer | None:
    literal = squeeze(text)
    if not literal or not is_balanced(text):
        return _with_odd_bracket(text, literal)
    try:
        answer = _readings(text) if depth_of(text) <= MAX_DEPTH else None
    except NotANumber:
        return None
    except (MemoryError, SeveralValues):
        raise
    except Exception:  # too large, or more than SymPy can do: only its text counts
        answer = None
    return Answer(literal, ()) if answer is None else replace(answer, literal=literal)


def _with_odd_bracket(text: str, literal: str) -> Answer | None:
    """A choice, ``B)`` or ``B) 12``; nothing else has brackets that do not close."""
    letter, choice = read_letter(text), split_choice(text)
    if choice is not None and is_balanced(choice[1]):
        return replace(answer, literal=literal) if (answer := _wording(text)) is not None else None
    return Answer(literal, (letter,)) if letter else None


def _readings(text: str) -> Answer | None:
    """The first reader that can read the text decides, save where it may mean two things."""
    if (number := rational(text)) is not None:
        listed = read_list(text, _read) if "," in text else None
        return Answer("", (Quantity(number), *filter(None, [listed])))
    amount, unit = split_unit(text)
    if unit is not None and rational(amount) is not None and (quantity := read_quantity(text)) is not None:
        return Answer("", (quantity,))
    for read in (_wording, _plus_minus, _several, _relation, _bracketed, _single):
        if (answer := read(text)) is not None:
            return answer
    return _readings(amount) if unit is not None else None


def _wording(text: str) -> Answer | None:
    """Words, choices, and text around what is no text."""
    if (letter := read_letter(text)) is not None:
        symbol = _TEXT.sub(r"\1", text).strip("().: ")
        return Answer("", (letter, *_of(_attempt(_single, symbol))))
    if (choice := split_choice(text)) is not None:
        if holds_choice(choice[1]):
            raise SeveralValues
        rest = _read(choice[1])
        return None if rest is None else Answer("", (choice[0], *rest.readings), f"choice {choice[0].letter}")
    if (introduced := without_lead(text)) is not None:
        return _read(introduced)
    inner = enclosed(text[len(r"\text") :].lstrip(), "{", "}") if text.startswith(r"\text") else None
    if inner is not None and (introduced := without_lead(inner)) is not None:
        return _read(tidy(introduced))
    words = read_words(text)
    if words is not None:
        other: list[Reading | None] = [read_list(inner or text, _read), read_named_region(words.text)]
        symbols = _attempt(_single, inner) if inner and len(words.text) < 4 and not is_roman(inner) else None
        return Answer("", (words, *filter(None, other), *_of(symbols)))
    return _read(tidy(inner)) if inner else None


def _plus_minus(text: str) -> Answer | None:
    """Both signs, one after the other; a list is taken apart first."""
    if _SIGNS.search(text) is None or len(split(text, SEPARATOR)[0]) > 1 or text.startswith((r"\{", "(", "[")):
        return None
    if re.search(r"[<>=]|\\(?:in|le|ge|ne)(?![A-Za-z])", text):
        return None
    both = [_read(_with_signs(text, plus, minus)) for plus, minus in ("+-", "-+")]
    items = tuple(item for item in both if item is not None)
    return Answer("", (Unordered(items, is_set=False),)) if len(items) == 2 else None


def _with_signs(text: str, upper: str, lower: str) -> str:
    return _SIGNS.sub(lambda match: upper if match[1] == "pm" else lower, text)


def _several(text: str) -> Answer | None:
    return read_exclusion(text, _read) or read_several(text, _read)


def _relation(text: str) -> Answer | None:
    return read_relation(text, _read)


def _bracketed(text: str) -> Answer | None:
    """Sets, intervals and tuples; brackets around one answer only group it."""
    inner = enclosed(text, r"\{", r"\}")
    if inner is not None and len(described := split(inner, _CONDITION)[0]) == 2:
        return _described(*described)
    region = read_region(text, _read)
    listed = _listed(region)
    found: list[Reading] = [
        r for r in (listed or region, read_set(text, _read), read_tuple(text, _read)) if r is not None
    ]
    if not found and (grouped := enclosed(text, "(", ")") or enclosed(text, "[", "]")):
        return _read(grouped)
    named = [assigned(reading.items) for reading in found if isinstance(reading, (Ordered, Unordered))]
    if named and named[0] is not None:
        return named[0]
    if found and isinstance(found[0], Unordered) and len(found[0].items) == 1:
        item = found[0].items[0]
        return Answer("", (*found, *item.readings), item.name, item.relations)
    return Answer("", tuple(found)) if found else None


def _described(element: str, condition: str) -> Answer:
    r"""The set of real x with a condition on x, ``\{x : x > 3\}``; of others, ``\{x^2 : x > 3\}``, only the text."""
    name = _REAL.sub("", element)
    answer = _read(condition) if is_name(name) else None
    return answer if answer is not None and answer.name == bare(name) else Answer("", ())


def _listed(region: Region | None) -> Unordered | None:
    """A set of a few numbers, however it came about, is a listed set."""
    if region is None or not isinstance(region.region, FiniteSet):
        return None
    return Unordered(tuple(Answer(str(number), (Quantity(number),)) for number in region.region.args), is_set=True)


def _single(text: str) -> Answer | None:
    """One value, in the first form that fits."""
    readers: tuple[Callable[[str], Reading | None], ...] = (read_time, read_based, read_matrix, read_ratio)
    for read in (*readers, read_quantity):
        if (reading := read(text)) is not None:
            return Answer("", tuple(_with_alternatives(reading, text)))
    return None


def _with_alternatives(reading: Reading, text: str) -> Iterator[Reading]:
    """What looks like a time may be a ratio, a ratio is also a quotient, and a column the tuple of its entries."""
    yield reading
    if isinstance(reading, Matrix) and len(reading.rows) > 1 and all(len(row) == 1 for row in reading.rows):
        yield Ordered(tuple(Answer(str(row[0]), (Quantity(row[0]),)) for row in reading.rows))
    if isinstance(reading, Time) and (ratio := read_ratio(text)) is not None:
        yield from _with_alternatives(ratio, text)
    if isinstance(reading, Ratio) and len(reading.terms) == 2:
        yield Quantity(reading.terms[0] / reading.terms[1])


def _attempt(read: Callable[[str], Answer | None], text: str) -> Answer | None:
    try:
        return read(text)
    except (NotANumber, TooLarge):
        return None


def _of(answer: Answer | None) -> tuple[Reading, ...]:
    return answer.readings if answer else ()
