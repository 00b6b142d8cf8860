import math
import random
import re
from collections import Counter

import pytest

from ngrpo.data.word_problems import story_words as words
from ngrpo.data.word_problems.generator import Equation, draw, problem
from ngrpo.demo_model.responses import direct, is_stepped, stepped
from ngrpo.types.problems import Problem

KEYS = range(600)


def reread(question: str) -> int:
    """The answer, worked out from the question's words alone."""
    value = {word: str(number) for number, word in enumerate(words.NUMBERS)}
    text = " ".join(value.get(word, word) for word in re.findall(r"\w+", question))
    opening = re.match(r"\w+ \w+ (\d+ \w+ with \d+|\d+)", text)[0]
    total = math.prod(int(digits) for digits in re.findall(r"\d+", opening))
    for verb, amount in re.findall(r"(\w+) (\d+)", text.removeprefix(opening)):
        assert (verb in words.GAIN) != (verb in words.LOSE)
        total += int(amount) if verb in words.GAIN else -int(amount)
    return total


def chain(key: int, split: str) -> tuple[Equation, ...]:
    return draw(key, split)[0].equations


def test_known_problem_stays_the_same() -> None:
    question = "Nora keeps 4 marbles. Next she donates two. How many marbles does she have overall?"
    assert problem(0, "held_out") == Problem(key=0, question=question, answer="2", difficulty=1.0)


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_answer_follows_from_the_question(split: str) -> None:
    for key in KEYS:
        drawn = problem(key, split)
        assert drawn.key == key
        assert drawn.answer == str(reread(drawn.question)), drawn.question


def test_drawing_in_another_order_gives_the_same_problems() -> None:
    forwards = [problem(key, "train") for key in range(50)]
    assert [problem(key, "train") for key in reversed(range(50))] == forwards[::-1]


def test_splits_share_no_chain_of_calculations() -> None:
    train = {chain(key, "train") for key in range(5000)}
    held_out = {chain(key, "held_out") for key in range(1000)}
    assert len(held_out) > 500
    assert not train & held_out


def test_each_equation_goes_on_from_the_one_before() -> None:
    for key in KEYS:
        equations = chain(key, "train")
        for before, after in zip(equations, equations[1:], strict=False):
            assert after.left == before.value
            assert after.operation in "+-"
        assert all(equation.value > 0 for equation in equations)


def test_problems_have_one_to_three_steps_and_varied_words() -> None:
    steps = Counter(len(chain(key, "train")) for key in KEYS)
    assert set(steps) == {1, 2, 3}
    assert min(steps.values()) > len(KEYS) / 5
    text = " ".join(problem(key, "train").question for key in KEYS)
    numbers = words.NUMBERS[2:]
    for word in (*words.OBJECTS, *words.CONTAINERS, *words.HAVE, *words.GAIN, *words.LOSE, *numbers):
        assert f" {word}" in text
    assert re.search(r" \d+ ", text)
    assert len({problem(key, "train").question for key in KEYS}) > 0.99 * len(KEYS)


def test_stepped_response_writes_every_calculation_and_direct_response_none() -> None:
    for key in KEYS:
        story, _ = draw(key, "train")
        written, at_once = stepped(story, random.Random(key)), direct(story, random.Random(key))
        assert re.findall(r"\(([^)]*)\)", written) == [str(equation) for equation in story.equations]
        for left, operation, right, value in re.findall(r"(\d+)([-+*])(\d+)=(\d+)", written):
            assert eval(f"{left}{operation}{right}") == int(value)
        assert is_stepped(written)
        assert not is_stepped(at_once)
        for response in (written, at_once):
            assert response.endswith(f"\n</think>\n\\boxed{{{story.answer}}}")


def test_negative_key_is_refused() -> None:
    with pytest.raises(ValueError, match="never negative, got -1"):
        problem(-1, "train")
