"""Boxes written to be paid for answers that they do not state."""

from pathlib import Path

import pytest

from ngrpo.rewards.isolation.judge import judge
from ngrpo.types.scores import Verdict

LINES = Path(__file__).with_name("attacks.txt").read_text(encoding="utf-8").splitlines()
ATTACKS = [line.split(" <- ") for line in LINES if line and not line.startswith("# ")]


@pytest.mark.parametrize(("reference", "box"), ATTACKS)
def test_not_paid(reference: str, box: str) -> None:
    assert judge(reference, reference) is Verdict.CORRECT
    assert judge(reference, box) is Verdict.WRONG
    assert judge(box, reference) is not Verdict.CORRECT
