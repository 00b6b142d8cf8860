"""Rewards of plain texts, as other programs call them."""

from collections.abc import Iterator

import pytest

from ngrpo.rewards.plain_texts import TextReward


@pytest.fixture(scope="module")
def reward() -> Iterator[TextReward]:
    made = TextReward()
    yield made
    made.close()


BOX = r"\boxed{7}"


def test_texts_and_messages_are_scored_by_their_box(reward: TextReward) -> None:
    assert reward(completions=[BOX, r"\boxed{8}", "7"], answer=["7", "7", "7"]) == [1.0, 0.0, 0.0]
    messages = [[{"role": "assistant", "content": BOX}]]
    assert reward(prompts=[[{"role": "user", "content": "<think>"}]], completions=messages, answer=[7]) == [1.0]
    assert TextReward(column="gold")(completions=[BOX], gold=["7"]) == [1.0]


def test_the_parts_of_a_message_that_are_text_are_scored(reward: TextReward) -> None:
    parts = [{"type": "text", "text": r"so \boxed"}, {"type": "image", "image": "7"}, {"type": "text", "text": "{7}"}]
    messages = [[{"role": "assistant", "content": said}] for said in (parts, [], None)]
    assert reward(completions=messages, answer=["7", "7", "7"]) == [1.0, 0.0, 0.0]


def test_a_box_in_reasoning_that_the_prompt_opened_does_not_count(reward: TextReward) -> None:
    for text, expected in ((BOX, 0.0), (f"so</think>{BOX}", 1.0)):
        assert reward(prompts=["How many?<think>\n"], completions=[text], answer=["7"]) == [expected]
    assert reward(prompts=["How many?"], completions=[BOX], answer=["7"]) == [1.0]


def test_what_an_engine_says_of_the_response_goes_before_the_completion(reward: TextReward) -> None:
    given = {"completions": [BOX], "response_text": [f"<think>{BOX}"], "answer": ["7"], "trainer_state": None}
    assert reward(**given) == [0.0]


def test_no_reward_where_the_reference_is_no_answer(reward: TextReward) -> None:
    assert reward(completions=[BOX, BOX, BOX], answer=["", None, "7"]) == [None, None, 1.0]
    with pytest.raises(KeyError, match="answer"):
        reward(completions=[BOX])
