"""``ngrpo.verify``: whether an answer is right."""

import atexit
from functools import cache

from ngrpo.errors import SettingError
from ngrpo.rewards.math import MathReward
from ngrpo.types.scores import Verdict


def verify(gold: str | float, answer: str | float) -> bool:
    r"""Says whether an answer equals a reference, as the reward of a training would (``docs/answer_checking.md``).

    Args:
        gold: the reference, such as ``"\frac{1}{2}"`` or 7.
        answer: the text of a response, of which the last ``\boxed{...}`` counts, or the bare answer, such as ``"0.5"``.

    Raises:
        SettingError: no answer can be compared with the reference.
    """
    gold, answer = str(gold), str(answer)
    text = answer if r"\boxed" in answer else rf"\boxed{{{answer}}}"
    (score,) = _reward()([text], [gold])
    if score.status is Verdict.UNPARSABLE_REFERENCE:
        raise SettingError(f"gold={gold!r} is no answer that others can be compared with; write it as a value.")
    return score.correct


@cache
def _reward() -> MathReward:
    """Starts the process that compares answers, once: what takes too long is ended there."""
    reward = MathReward(workers=1)
    atexit.register(reward.close)
    return reward
