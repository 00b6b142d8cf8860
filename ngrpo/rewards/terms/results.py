"""Results of rewards that the user has written, as numbers and scores, or what is wrong with them."""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from ngrpo.rewards.answers.boxed import answer_of
from ngrpo.types.scores import Score, Verdict

_CORRECT_ABOVE = 0.5
_REASONING_END = "</think>"


class WrongResult(Exception):
    """A result is not one number for each response; the message says what it is, as a clause."""


def numbers(result: Any, count: int) -> list[float]:
    """Returns a result as one number a response.

    Args:
        result: a list, tuple, tensor or array of numbers, or of `Score`.
        count: of responses.

    Raises:
        WrongResult: it is something else.
    """
    return [_number(one) for one in _elements(result, count)]


def scores_of(result: Any, texts: Sequence[str]) -> list[Score]:
    """Returns a result as one score a response.

    A number becomes the score of a response that is correct if it is above 0.5, with the boxed answer, if any.

    Raises:
        WrongResult: as for `numbers`.
    """
    elements = _elements(result, len(texts))
    return [one if isinstance(one, Score) else _score(one, text) for one, text in zip(elements, texts, strict=True)]


def refuse_nan(result: Any, count: int) -> None:
    """Refuses a result with NaN or an infinite number, as `numbers` does what is no number.

    A `Score` may have it: its verdict says why.

    Raises:
        WrongResult: there is one, or an infinite number.
    """
    for index, value in enumerate(_elements(result, count)):
        if not (isinstance(value, Score) and math.isnan(value.reward)) and not math.isfinite(_number(value)):
            raise WrongResult(f"returned {_number(value)} for response {index}")


def _number(one: Any) -> float:
    return one.reward if isinstance(one, Score) else one


def _score(value: float, text: str) -> Score:
    correct = value > _CORRECT_ABOVE
    return Score(value, correct, answer_of(text, _REASONING_END), Verdict.CORRECT if correct else Verdict.WRONG)


def _elements(result: Any, count: int) -> list[Any]:
    shape = getattr(result, "shape", None)
    if shape is not None and hasattr(result, "tolist"):
        if tuple(shape) != (count,):
            raise WrongResult(f"returned shape {tuple(shape)}, not one value for each of {count} responses")
        result = result.tolist()
    if not isinstance(result, Sequence) or isinstance(result, str | bytes | Mapping):
        raise WrongResult(f"returned {_shown(result)}, not a list with a number for each of {count} responses")
    if len(result) != count:
        raise WrongResult(f"returned {len(result)} scores for {count} responses")
    return [_element(one, index) for index, one in enumerate(result)]


def _element(one: Any, index: int) -> Any:
    if isinstance(one, Score):
        return one
    if getattr(one, "shape", None) == () and hasattr(one, "item"):
        one = one.item()
    if isinstance(one, Real):
        return float(one)
    raise WrongResult(f"returned {_shown(one)} for response {index}, which is no number")


def _shown(value: Any) -> str:
    if value is None:
        return "None"
    shown = repr(value)
    return f"{shown if len(shown) <= 40 else shown[:40] + '...'} ({type(value).__name__})"
