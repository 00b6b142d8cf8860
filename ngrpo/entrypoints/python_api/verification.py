"""``ngrpo.verify``: whether an answer is right."""

import atexit
import math
from decimal import Decimal
from functools import cache
from numbers import Real
from typing import Any, TypeAlias

from ngrpo.data.sources.problem_text import check_text
from ngrpo.errors import SettingError
from ngrpo.rewards.math import MathReward
from ngrpo.types.scores import Verdict
from ngrpo.utils.given_values import as_written, shown

Number: TypeAlias = Real | float | Decimal
"""An int, a float, a fraction, a decimal or a scalar of NumPy; one of PyTorch is taken, too."""


def verify(gold: str | Number, answer: str | Number) -> bool:
    r"""Says whether an answer equals a reference, as the reward of a training would (``docs/answer_checking.md``).

    Args:
        gold: the reference, such as ``"\frac{1}{2}"`` or 7.
        answer: the text of a response, of which the last ``\boxed{...}`` counts, or the bare answer, such as ``"0.5"``.

    Raises:
        SettingError: one of them is neither text nor a number, or no answer can be compared with the reference.
    """
    reference, given = _written("gold", gold), _written("answer", answer)
    text = given if r"\boxed" in given else rf"\boxed{{{given}}}"
    (score,) = _reward()([text], [reference])
    if score.status is Verdict.UNPARSABLE_REFERENCE:
        raise SettingError(f"gold={reference!r} is no answer that others can be compared with; write it as a value.")
    return score.correct


def _written(name: str, value: Any) -> str:
    """Returns a text, or a number as one writes it."""
    given = as_written(value)
    if isinstance(given, str):
        check_text(name, given)
        return str(given)
    if isinstance(given, bool) or not isinstance(given, Real | Decimal):
        raise SettingError(f"{name}={shown(value)} is neither text nor a number; give one of them.")
    if isinstance(given, float | Decimal) and not math.isfinite(given):
        raise SettingError(f"{name}={given} is no number that can be compared; give a finite one, or a text.")
    try:
        # Not 1e-07, which is no mathematics.
        return f"{Decimal(str(given)):f}" if isinstance(given, float | Decimal) else str(given)
    except ValueError as error:  # of an integer with too many digits
        raise SettingError(f"{name}={shown(value)} has too many digits; give it as a text.") from error


@cache
def _reward() -> MathReward:
    """Starts the process that compares answers, once: what takes too long is ended there."""
    reward = MathReward(workers=1)
    atexit.register(reward.close)
    return reward
