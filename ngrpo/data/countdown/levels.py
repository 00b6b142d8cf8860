"""The difficulty levels of countdown puzzles, and their splits."""

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from ngrpo.data.word_problems.levels import Split, chosen_split
from ngrpo.errors import SettingError

_PATH = re.compile(r"countdown(?::(?P<least>\d+)-(?P<most>\d+))?(?:@(?P<split>\w+))?")
_KEPT_ONE_IN = 8
_KEPT: dict[int, Split] = {0: "held_out", 1: "validation"}


@dataclass(frozen=True)
class CountdownLevel:
    """A family of puzzles.

    Attributes:
        least: fewest numbers of a puzzle.
        most: most; all counts between are equally frequent.
        largest: given numbers are from 1 to this.
        targets: range of what is to be reached.
        between: largest value on the way of the solution that a puzzle is made from.
    """

    least: int = 4
    most: int = 5
    largest: int = 9
    targets: tuple[int, int] = (10, 60)
    between: int = 120

    @property
    def name(self) -> str:
        """What ``data.path`` calls it."""
        return f"countdown:{self.least}-{self.most}"

    def split_of(self, numbers: Sequence[int]) -> Split:
        """Returns the split of all puzzles with these numbers, in any order and whatever is to be reached."""
        content = " ".join(map(str, sorted(numbers)))
        return _KEPT.get(zlib.crc32(content.encode()) % _KEPT_ONE_IN, "train")


def read_countdown_path(path: object, default: Split) -> tuple[CountdownLevel, Split] | None:
    """Returns the family and split that a path such as ``countdown``, ``countdown:3-5@validation`` names.

    Args:
        path: the path; None is returned for whatever is no name of a countdown.
        default: the split where it names none.

    Raises:
        SettingError: the family has no such puzzles, or no such split.
    """
    found = _PATH.fullmatch(path) if isinstance(path, str) else None
    if found is None:
        return None
    level = CountdownLevel()
    if found["least"]:
        least, most = int(found["least"]), int(found["most"])
        if not 2 <= least <= most <= 6:
            raise SettingError(f"{path}: such puzzles cannot be made; choose 2 <= least <= most <= 6 numbers.")
        level = CountdownLevel(least, most)
    return level, chosen_split(path, level.name, get_args(Split), found["split"] or default)
