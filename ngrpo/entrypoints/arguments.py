"""Types for argparse: numbers in a range, refused by the usage before any work."""

import argparse
import math
from collections.abc import Callable

MOST = 2**31 - 1
SEEDS = 2**32 - 1


def whole(least: int, most: int = MOST) -> Callable[[str], int]:
    """Returns a type for argparse: whole numbers in [least, most]."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number") from error
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]} is not in [{least}, {most}]")
        return value

    return number


def real(above: float) -> Callable[[str], float]:
    """Returns a type for argparse: finite numbers larger than one."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number") from error
        if not (value > above and math.isfinite(value)):
            raise argparse.ArgumentTypeError(f"{text[:40]} is no finite number above {above:g}")
        return value

    return number
