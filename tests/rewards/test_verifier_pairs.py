"""Responses with the verdicts that they must get, and the same pairs with the two sides changed about."""

import json
from pathlib import Path

import pytest

from ngrpo.rewards.answers.boxed import answer_of
from ngrpo.rewards.isolation.judge import judge
from ngrpo.types.scores import Verdict

PAIRS = [
    json.loads(line)
    for name in ("verifier_pairs.jsonl", "verifier_pairs_2.jsonl")
    for line in Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair['gold']}~{pair['text']}")
def test_verdict(pair: dict[str, object]) -> None:
    gold, answer = str(pair["gold"]), answer_of(str(pair["text"]), "</think>")
    assert pair["expected"] == (answer is not None and judge(gold, answer) is Verdict.CORRECT)
    if answer is not None:
        assert judge(answer, gold) in (
            (Verdict.CORRECT,) if pair["expected"] else (Verdict.WRONG, Verdict.UNPARSABLE_REFERENCE)
        )


def test_there_are_all_of_them() -> None:
    assert len(PAIRS) == 45 + 164
