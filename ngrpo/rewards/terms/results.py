"""Results of rewards that the user has written, as numbers and scores, or what is wrong with them."""

import inspect
import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from ngrpo.errors import first_line
from ngrpo.rewards.answers.boxed import answer_of
from ngrpo.types.scores import Score, Verdict
from ngrpo.utils.given_values import plain, shown

_CORRECT_ABOVE = 0.5
_REASONING_END = "</think>"
_NO_LISTS = (str, bytes, bytearray, memoryview, Mapping)
"""Sequences, and what might be taken for one, that hold something else than rewards."""


class WrongResult(Exception):
    """A result is not one number for each response; the message says what it is, as a clause."""


def plain_result(result: Any, count: int) -> list[float | Score]:
    """Returns a result as a list of Python floats and scores, which any process can read.

    Raises:
        WrongResult: as for `numbers`.
    """
    return _elements(result, count)


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


def _number(one: float | Score) -> float:
    return one.reward if isinstance(one, Score) else one


def _score(value: float, text: str) -> Score:
    correct = value > _CORRECT_ABOVE
    return Score(value, correct, answer_of(text, _REASONING_END), Verdict.CORRECT if correct else Verdict.WRONG)


def _elements(result: Any, count: int) -> list[float | Score]:
    for one in result if isinstance(result, list | tuple) else (result,):
        if inspect.iscoroutine(one):
            one.close()  # else Python warns that nobody has waited for it
    shape = getattr(result, "shape", None)
    if shape is not None and hasattr(result, "tolist"):
        if tuple(shape) != (count,):
            raise WrongResult(f"returned shape {tuple(shape)}, not one value for each of {count} responses")
        result = _listed(result)
    if not isinstance(result, Sequence) or isinstance(result, _NO_LISTS):
        raise WrongResult(f"returned {shown(result)}, not a list with a number for each of {count} responses")
    if len(result) != count:
        raise WrongResult(f"returned {len(result)} scores for {count} responses")
    return [_element(one, index) for index, one in enumerate(result)]


def _listed(result: Any) -> Any:
    try:
        return result.tolist()
    except Exception as error:  # of a tensor without values, or one that is not dense
        raise WrongResult(f"returned {shown(result)}, whose values cannot be read ({first_line(error)})") from error


def _element(one: Any, index: int) -> float | Score:
    if not isinstance(one, Score):
        return _real(one, f"{shown(one)} for response {index}")
    where = f"a Score for response {index} with"
    if not (one.answer is None or isinstance(one.answer, str)):
        raise WrongResult(f"returned {where} answer={shown(one.answer)}, which is neither text nor None")
    try:
        status = Verdict(one.status)
    except ValueError as error:
        raise WrongResult(f"returned {where} status={shown(one.status)}, which is no Verdict") from error
    if not isinstance(correct := plain(one.correct), bool):
        raise WrongResult(f"returned {where} correct={shown(one.correct)}, which is neither true nor false")
    return Score(_real(one.reward, f"{where} reward={shown(one.reward)}"), correct, one.answer, status)


def _real(given: Any, described: str) -> float:
    value = plain(given)
    if not isinstance(value, Real):
        raise WrongResult(f"returned {described}, which is no number")
    try:
        return float(value)
    except OverflowError as error:
        raise WrongResult(f"returned {described}, which is too large a number") from error
