"""Spans of time as a person writes them."""

import re

from ngrpo.errors import SettingError

_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_PATTERN = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?")


def seconds(text: str, setting: str) -> int:
    """Returns the seconds in e.g. "2d", "11h30m" or "90s".

    Raises:
        SettingError: it is written otherwise, or nothing long.
    """
    found = _PATTERN.fullmatch(text)
    total = sum(int(n) * s for n, s in zip(found.groups(), _SECONDS.values(), strict=True) if n) if found else 0
    if total < 1:
        raise SettingError(f"{setting}={text[:40]} is no span of time; write it like 90s, 45m, 11h30m or 2d.")
    return total
