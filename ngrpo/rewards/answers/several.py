r"""Lists without brackets: values, points, pieces of a set, conditions on an unknown, named values."""

import re
from itertools import combinations

from sympy import Intersection, Set, Union

from ngrpo.rewards.answers.assignments import assigned
from ngrpo.rewards.answers.collections import Unordered, read_list
from ngrpo.rewards.answers.reading import Answer, Read
from ngrpo.rewards.answers.regions import Region, region_of

_OR = re.compile(r"\bor\b|\\lor|\\vee")


def read_several(text: str, read: Read) -> Answer | None:
    """Read a list; None if the text is none.

    Pairs that are listed are points or, if they do not overlap, the pieces of a set: the other side decides.
    Conditions on one unknown are met together, or one or the other where "or" says so or they exclude each other.
    """
    listed = read_list(text, read)
    if listed is None:
        return None
    names = [item.name and item.name.split("_")[0] for item in listed.items]
    regions = [region for item in listed.items if (region := region_of(item)) is not None and _is_region(item)]
    either = _OR.search(text) is not None
    if len(regions) == len(listed.items):
        return _conditions(listed, regions, names, either) if any(names) else _pieces(listed, regions, either)
    if len(set(names)) == 1:
        return Answer("", (listed,), names[0])
    return assigned(listed.items) or Answer("", (listed,))


def _is_region(item: Answer) -> bool:
    return isinstance(item.readings[0], Region)


def _pieces(listed: Unordered, regions: list[Set], either: bool) -> Answer:
    disjoint = either or all(first.is_disjoint(second) for first, second in combinations(regions, 2))
    union = Union(*regions)
    return Answer("", (listed, Region(union)) if disjoint and union not in regions else (listed,))


def _conditions(listed: Unordered, regions: list[Set], names: list[str | None], either: bool) -> Answer:
    if len(set(names) - {None}) > 1:
        return assigned(listed.items) or Answer("", (listed,))
    both = Intersection(*regions)
    met = Union(*regions) if either or both.is_empty else both
    name = next(filter(None, names))
    # What one of them says alone is no statement of all of them, but one candidate among others.
    return Answer("", (listed,), name) if met in regions else Answer("", (Region(met),), name)
