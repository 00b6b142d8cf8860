"""What counts as exactly one answer."""

import pytest
from made_responses import responses

from ngrpo.rewards.terms.one_box import OneBox, stated_answer

TEXTS = {
    r"<think>\boxed{1} \boxed{2}</think>It is \boxed{3}.": 1.0,
    r"It is \boxed{3}.": 1.0,
    r"It is \boxed{3}, so \boxed 4": 0.0,
    r"<think>\boxed{3}": 0.0,
    r"<think>\boxed{3}</think>It is 3.": 0.0,
    r"put it in \boxed{}; \boxed{3}": 0.0,
    r"\boxed{}": 0.0,
    r"\boxed{3} and \boxed{4": 1.0,
    "": 0.0,
}


def test_exactly_one_box_after_the_reasoning():
    found = OneBox()(responses([None] * len(TEXTS), texts=list(TEXTS)))
    assert dict(zip(TEXTS, found.tolist(), strict=True)) == TEXTS


@pytest.mark.parametrize(("text", "value"), [(r"\boxed{1}</think>\boxed{2}", 0.0), (r"<think>\boxed{1}", 1.0)])
def test_without_a_marker_the_whole_response_counts(text: str, value: float):
    assert OneBox(reasoning_end=None)(responses([None], texts=[text])).tolist() == [value]


def test_any_stated_answer_counts():
    assert stated_answer(responses(["7", None, "8"])).tolist() == [1.0, 0.0, 1.0]
