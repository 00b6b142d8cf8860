r"""Several answers in one: lists and sets without order, pairs and tuples with one.

A list without brackets, ``1, 2`` or ``1 \text{ and } 2``, says the same as the set ``\{2, 1\}``. How often an entry
occurs counts only between two lists.
"""

import re
from dataclasses import dataclass

from ngrpo.rewards.answers.limits import MAX_ITEMS
from ngrpo.rewards.answers.reading import Answer, Read, equal
from ngrpo.rewards.answers.scan import enclosed, split

_AND = r",? ?\\text ?\{ ?,? ?(?:and|or) ?,? ?\}|,? (?:and|or) |\\(?:lor|vee|land|wedge)(?![A-Za-z])"
SEPARATOR = re.compile(rf"{_AND}|[,;]")
_SEMICOLON = re.compile(";")
_GROUPS = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?!\d|,\d)")
_LISTABLE = re.compile(r"[1-9]\d{0,2}(?:,[1-9]\d{2})+")
_NAMED_NUMBER = re.compile(r"[^,=]+= ?-?(?:\\\$ ?)?\d{1,3}(?:,\d{3})+(?!\d)[^,]*")
_LOGIC = re.compile(r"\\(?:lor|vee|land|wedge)(?![A-Za-z])")
_RELATION = re.compile(r"[<>=]|\\(?:le|ge|ne|in)(?![A-Za-z])")
_BRACKETS = (("(", ")"), ("[", "]"), (r"\langle", r"\rangle"))


@dataclass(frozen=True)
class Unordered:
    """A list or set.

    Attributes:
        items: the entries as they are written.
        is_set: it has set braces.
        in_order: the entries are values of names that are not said here, so that their order counts.
    """

    items: tuple[Answer, ...]
    is_set: bool
    in_order: bool = False

    def equals(self, other: "Unordered") -> bool:
        """Each entry of one has its own equal entry in the other."""
        first, second = self.items, other.items
        if self.in_order or other.in_order:
            return not (self.is_set or other.is_set) and Ordered(first).equals(Ordered(second))
        if self.is_set or other.is_set:
            first, second = _distinct(first), _distinct(second)
        return len(first) == len(second) and _match(first, list(second))


@dataclass(frozen=True)
class Ordered:
    """A pair, a tuple or a vector written in brackets."""

    items: tuple[Answer, ...]

    def equals(self, other: "Ordered") -> bool:
        """Equal entries at the same places."""
        if len(self.items) != len(other.items):
            return False
        return all(equal(a, b) for a, b in zip(self.items, other.items, strict=True))


def read_set(text: str, read: Read) -> Unordered | None:
    r"""Read ``\{...\}``; a set that is described and not listed is none."""
    inner = enclosed(text, r"\{", r"\}")
    if inner is None:
        return None
    return unordered(_parts(inner), read, is_set=True) if inner else Unordered((), is_set=True)


def read_list(text: str, read: Read) -> Unordered | None:
    r"""Read a list without brackets: ``1, 2`` or ``1 \text{ or } 2``; of ``100,200`` the entries.

    ``x = 1,234`` names one number, and ``p \lor q`` is a statement.
    """
    if _GROUPS.fullmatch(text):
        return unordered(text.split(","), read) if _LISTABLE.fullmatch(text) else None
    if _NAMED_NUMBER.fullmatch(text) or (_LOGIC.search(text) and not _RELATION.search(text)):
        return None
    parts = _parts(text)
    return unordered(parts, read) if len(parts) > 1 else None


def read_tuple(text: str, read: Read) -> Ordered | None:
    r"""Read ``(1, 2)``, ``[1, 2, 3]`` or ``\langle 1, 2\rangle``; two entries in square brackets are an interval."""
    for opening, closing in _BRACKETS:
        if (inner := enclosed(text, opening, closing)) is not None:
            parts = split(_grouped(inner), _comma(inner))[0]
            enough = 3 if opening == "[" else 2
            items = _answers(parts, read) if len(parts) >= enough else None
            return None if items is None else Ordered(items)
    return None


def unordered(parts: list[str], read: Read, is_set: bool = False) -> Unordered | None:
    """Read each part; parts that are lists themselves, such as plus-minus, count with their entries."""
    items = _answers(parts, read)
    if items is None:
        return None
    nested = [
        [r for r in item.readings if isinstance(r, Unordered) and not r.is_set and not r.in_order] for item in items
    ]
    flat = [item for item, lists in zip(items, nested, strict=True) for item in (lists[0].items if lists else (item,))]
    return Unordered(tuple(flat), is_set)


def _parts(text: str) -> list[str]:
    parts, _ = split(_grouped(text), SEPARATOR)
    return [part for part in parts if part]


def _comma(inner: str) -> re.Pattern[str]:
    return _SEMICOLON if ";" in inner else re.compile(",")


def _grouped(text: str) -> str:
    """Join thousands, ``1,000, 2,000``, where entries are told apart by a space or a semicolon."""
    if re.search(r", |;|\\text|and|or", text) is None:
        return text
    return _GROUPS.sub(lambda match: match[0].replace(",", ""), text)


def _answers(parts: list[str], read: Read) -> tuple[Answer, ...] | None:
    if len(parts) > MAX_ITEMS:
        return None
    items = tuple(read(part) for part in parts)
    return None if None in items else tuple(item for item in items if item is not None)


def _distinct(items: tuple[Answer, ...]) -> tuple[Answer, ...]:
    kept: list[Answer] = []
    for item in items:
        if not any(equal(item, other) for other in kept):
            kept.append(item)
    return tuple(kept)


def _match(items: tuple[Answer, ...], others: list[Answer]) -> bool:
    for item in items:
        place = next((i for i, other in enumerate(others) if equal(item, other)), None)
        if place is None:
            return False
        del others[place]
    return True
