"""What counts as one number a response, and what is said of anything else."""

import math
import re
from typing import Any

import pytest
import torch
from reward_functions import returning

from ngrpo.rewards.terms.results import WrongResult, numbers, refuse_nan, scores_of
from ngrpo.types.scores import Score, Verdict

TEXTS = ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "what", ["scalars", "array", "flags", "process", "numpy scalars", "numpy flags", "bfloat16", "with gradient"]
)
def test_lists_arrays_and_their_scalars_are_numbers(what: str) -> None:
    values = numbers(returning(TEXTS, what), 4)
    assert all(type(value) is float for value in values)
    assert len(values) == 4


@pytest.mark.parametrize(
    ("result", "clause"),
    [
        (None, "returned None, not a list with a number for each of 4 responses"),
        (0.5, "returned 0.5 (float), not a list with a number for each of 4 responses"),
        ("good", "returned 'good' (str), not a list"),
        ({"a": 1}, "returned {'a': 1} (dict), not a list"),
        ([0.0] * 3, "returned 3 scores for 4 responses"),
        (torch.zeros(2), "returned shape (2,), not one value for each of 4 responses"),
        (torch.zeros(4, 1), "returned shape (4, 1), not one value for each of 4 responses"),
        (torch.tensor(1.0), "returned shape (), not one value for each of 4 responses"),
        ([0.0, None, 0.0, 0.0], "returned None for response 1, which is no number"),
        ([0.0, 0.0, "x", 0.0], "returned 'x' (str) for response 2, which is no number"),
        (returning(TEXTS, "generator"), "(generator), not a list"),
        (returning(TEXTS, "dict"), "(dict), not a list"),
        (returning(TEXTS, "set"), "(set), not a list"),
        (returning(TEXTS, "decimals"), "returned Decimal('0.5') (Decimal) for response 0, which is no number"),
        (returning(TEXTS, "complex"), "returned 1j (complex) for response 0, which is no number"),
        (returning(TEXTS, "texts in an array"), "returned 'a' (str) for response 0, which is no number"),
        (returning(TEXTS, "objects in an array"), "returned None for response 0, which is no number"),
        ([[0.0]] * 4, "returned [0.0] (list) for response 0, which is no number"),
        (returning(TEXTS, "huge"), "... (int) for response 0, which is too large a number"),
        (returning(TEXTS, "huge fractions"), "(Fraction) for response 0, which is too large a number"),
        (returning(TEXTS, "bytes"), "(bytearray), not a list with a number for each of 4 responses"),
        (returning(TEXTS, "no values"), "(Tensor), whose values cannot be read ("),
        (returning(TEXTS, "functions"), "(builtin_function_or_method) for response 0, which is no number"),
        (returning(TEXTS, "a score of text"), "a Score for response 0 with reward='1' (str), which is no number"),
        (returning(TEXTS, "a score of another verdict"), "with status='fine' (str), which is no Verdict"),
        (returning(TEXTS, "a score of a number as answer"), "with answer=3 (int), which is neither text nor None"),
        (returning(TEXTS, "a score that is perhaps correct"), "with correct=None, which is neither true nor false"),
    ],
)
def test_anything_else_is_described(result: Any, clause: str) -> None:
    with pytest.raises(WrongResult, match=re.escape(clause)):
        numbers(result, 4)


def test_nan_is_a_number_but_not_on_a_trial() -> None:
    result = [0.0, float("nan"), 0.0, 0.0]
    assert len(numbers(result, 4)) == 4
    with pytest.raises(WrongResult, match="returned nan for response 1"):
        refuse_nan(result, 4)
    with pytest.raises(WrongResult, match="returned -inf for response 0"):
        refuse_nan([-math.inf] * 4, 4)
    refuse_nan([Score(math.nan, False, None, Verdict.UNPARSABLE_REFERENCE)] * 4, 4)


def test_a_number_is_the_score_of_an_answer_that_is_right_above_one_half() -> None:
    texts = [r"\boxed{4}", "four", r"so \boxed{5}"]
    assert scores_of([0.51, 0.5, -1], texts) == [
        Score(0.51, True, "4", Verdict.CORRECT),
        Score(0.5, False, None, Verdict.WRONG),
        Score(-1.0, False, "5", Verdict.WRONG),
    ]


def test_scores_stay_as_they_are() -> None:
    score = Score(3.0, False, "x", Verdict.NO_ANSWER)
    assert scores_of([score], ["text"]) == [score]
    assert numbers([score, 1], 2) == [3.0, 1.0]
