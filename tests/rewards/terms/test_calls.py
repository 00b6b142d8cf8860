"""A reward that fails names the sample."""

from collections.abc import Callable, Sequence

import pytest

from ngrpo.errors import RunError
from ngrpo.rewards.terms.calls import declared, scored
from ngrpo.types.scores import Score, Verdict

SCORE = Score(1.0, True, "4", Verdict.CORRECT)
TEXTS, REFERENCES, PROBLEMS = ["one", "two" * 40, "three"], ["1", "2", "3"], [10, 10, 77]


def fails_on_two(texts: Sequence[str], references: Sequence[str]) -> list[Score]:
    if "2" in references:
        raise KeyError("no such answer")
    return [SCORE] * len(texts)


def fails_together(texts: Sequence[str], references: Sequence[str]) -> list[Score]:
    if len(texts) > 1:
        raise ZeroDivisionError("all equal")
    return [SCORE] * len(texts)


def test_scores_pass() -> None:
    assert scored(lambda texts, references: [SCORE] * len(texts), TEXTS, REFERENCES, PROBLEMS) == [SCORE] * 3


def test_the_sample_and_the_place_are_named() -> None:
    with pytest.raises(RunError) as caught:
        scored(fails_on_two, TEXTS, REFERENCES, PROBLEMS)
    line = fails_on_two.__code__.co_firstlineno + 2
    assert str(caught.value) == (
        f"reward raised KeyError('no such answer') in test_calls.py:{line} on response 1, to problem 10: "
        f"'{('two' * 40)[:80]}...'; fix it and resume with ckpt=latest."
    )


def test_what_fails_on_none_alone_says_so() -> None:
    with pytest.raises(
        RunError, match=r"ZeroDivisionError\('all equal'\) in .* on all responses together, on none alone;"
    ):
        scored(fails_together, TEXTS, REFERENCES, PROBLEMS)


def test_a_score_too_few_is_refused() -> None:
    with pytest.raises(RunError, match=r"^reward returned 2 scores for 3 responses; let it return one for each\.$"):
        scored(lambda texts, references: [SCORE] * 2, TEXTS, REFERENCES, PROBLEMS)


QUESTIONS = ["1?", "2?", "3?"]


class TakesQuestions:
    """Fails on one of several questions; its answers are the questions."""

    def __call__(self, texts: Sequence[str], references: Sequence[str], questions: Sequence[str]) -> list[Score]:
        if "2?" in questions and "2" not in references:
            raise KeyError("no such answer")
        return [Score(1.0, True, question, Verdict.CORRECT) for question in questions]


def takes_more(texts: Sequence[str], references: Sequence[str], **more: Sequence[str]) -> list[Score]:
    return [Score(1.0, True, question, Verdict.CORRECT) for question in more["questions"]]


@pytest.mark.parametrize("reward", [TakesQuestions(), takes_more])
def test_a_reward_that_declares_questions_gets_them(reward: Callable[..., list[Score]]) -> None:
    answers = [score.answer for score in scored(reward, TEXTS, REFERENCES, PROBLEMS, QUESTIONS)]
    assert answers == QUESTIONS


def test_others_do_not() -> None:
    assert scored(lambda texts, references: [SCORE] * 3, TEXTS, REFERENCES, PROBLEMS, QUESTIONS) == [SCORE] * 3


def test_the_sample_is_named_with_its_question() -> None:
    with pytest.raises(RunError, match=r"on response 1, to problem 10"):
        scored(TakesQuestions(), TEXTS, ["1", "x", "3"], PROBLEMS, QUESTIONS)


def test_what_a_callable_declares() -> None:
    offered = {"questions": 1, "levels": 2}
    assert declared(TakesQuestions(), offered) == {"questions": 1}
    assert declared(takes_more, offered) == offered
    assert declared(fails_on_two, offered) == declared(min, offered) == {}
