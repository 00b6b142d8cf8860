"""The difficulty levels of the demo's problems, and their splits."""

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from ngrpo.errors import SettingError

Split = Literal["train", "validation", "held_out"]

_PATH = re.compile(r"demo(?::(?P<least>\d+)-(?P<most>\d+))?(?:@(?P<split>\w+))?")
_KEPT_ONE_IN = 8


@dataclass(frozen=True)
class Level:
    """A family of problems.

    Attributes:
        least: calculations of the shortest problems.
        most: those of the longest; all lengths between are equally frequent.
        start: range of the number that a story starts from.
        containers: range of the number of containers.
        content: range of what is in each of them.
        change: largest number that is added or taken away.
        validates: part of the chains is kept for validation, and chains that differ in the order of their changes only
            are in the same split.
    """

    least: int = 1
    most: int = 3
    start: tuple[int, int] = (4, 20)
    containers: tuple[int, int] = (2, 5)
    content: tuple[int, int] = (2, 9)
    change: int = 12
    validates: bool = False

    @property
    def name(self) -> str:
        """What ``data.path`` calls it."""
        return f"demo:{self.least}-{self.most}" if self.validates else "demo"

    def splits(self) -> tuple[Split, ...]:
        """Returns the splits there are."""
        return get_args(Split) if self.validates else ("train", "held_out")

    def split_of(self, calculations: Iterable[str], changes: Iterable[str]) -> Split:
        """Returns the split of a chain of calculations.

        Args:
            calculations: written out, in order.
            changes: its first number, or product, and each addition and subtraction.
        """
        chain = " ".join(sorted(changes) if self.validates else calculations)
        rest = zlib.crc32(chain.encode()) % _KEPT_ONE_IN
        kept: dict[int, Split] = {0: "held_out", 1: "validation"} if self.validates else {0: "held_out"}
        return kept.get(rest, "train")


SHIPPED = Level()
"""What the shipped model was pretrained on."""


def harder(least: int, most: int) -> Level:
    """Returns the family with larger numbers and so many calculations.

    Raises:
        SettingError: there are no such problems.
    """
    if not 1 <= least <= most <= 9:
        raise SettingError(
            f"demo:{least}-{most}: such problems cannot be made; choose 1 <= least <= most <= 9 calculations."
        )
    return Level(least, most, start=(5, 60), containers=(2, 9), content=(2, 12), change=40, validates=True)


def read_path(path: object, default: Split) -> tuple[Level, Split] | None:
    """Returns the family and split that a path such as ``demo``, ``demo:2-6`` or ``demo:2-6@validation`` names.

    Args:
        path: the path; None is returned for whatever is no name of the demo.
        default: the split where it names none.

    Raises:
        SettingError: the family has no such problems, or no such split.
    """
    found = _PATH.fullmatch(path) if isinstance(path, str) else None
    if found is None:
        return None
    level = harder(int(found["least"]), int(found["most"])) if found["least"] else SHIPPED
    return level, chosen_split(path, level.name, level.splits(), found["split"] or default)


def chosen_split(path: object, family: str, splits: Sequence[Split], named: str) -> Split:
    """Returns the split of a family that a path names.

    Raises:
        SettingError: the family has none of this name.
    """
    for split in splits:
        if split == named:
            return split
    raise SettingError(f"{path}: {family} has the splits {', '.join(splits)}; choose one of them.")
