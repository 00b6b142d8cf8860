"""``import ngrpo``: quick, and with everything that it promises."""

import os
import re
import subprocess
import sys

import pytest
from places import ROOT

import ngrpo

HEAVY = {"torch", "lightning", "transformers", "hydra", "omegaconf", "sympy", "rich"}
LIMIT_US = 300_000


def test_it_takes_less_than_three_tenths_of_a_second() -> None:
    """The best of three: the machine has other things to do."""
    lists = [imported("import ngrpo") for _ in range(3)]
    assert min(times["ngrpo"] for times in lists) < LIMIT_US
    assert HEAVY.isdisjoint(lists[0])


def test_only_what_is_asked_for_is_imported() -> None:
    found = imported("import ngrpo; ngrpo.verify")
    assert "ngrpo.rewards.math" in found
    assert "lightning" not in found


def imported(code: str) -> dict[str, int]:
    """Returns the microseconds of each import, with those that it causes."""
    command = [sys.executable, "-X", "importtime", "-c", code]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr
    return {name: int(time) for time, name in re.findall(r"^import time: +\d+ \| +(\d+) \| +(\S+)$", said, re.M)}


@pytest.mark.parametrize("name", ngrpo.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(ngrpo, name).__name__ == name
    assert name in dir(ngrpo)


def test_a_name_that_is_not_there_is_said() -> None:
    with pytest.raises(AttributeError, match="module 'ngrpo' has no attribute 'smaple'"):
        ngrpo.smaple  # noqa: B018
