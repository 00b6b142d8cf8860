r"""A reward of your own: 1 for the right number in the last ``\boxed{}``, a little for any box."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ngrpo.types.scores import Score, Verdict

_BOX = re.compile(r"\\boxed\{([^{}]*)\}")


@dataclass(frozen=True)
class BoxedNumber:
    """Compares texts; it runs in a process of its own, which may take ``custom_reward_timeout_s`` for a call.

    Attributes:
        boxed: reward of a wrong answer that stands in a box.
    """

    boxed: float = 0.1

    def __call__(self, responses: Sequence[str], references: Sequence[str]) -> list[Score]:
        """Returns a score for each response, in their order."""
        return [self._score(response, reference) for response, reference in zip(responses, references, strict=True)]

    def close(self) -> None:
        """Nothing is held open."""

    def _score(self, response: str, reference: str) -> Score:
        found = _BOX.findall(response)
        if not found:
            return Score(0.0, False, None, Verdict.NO_ANSWER)
        if found[-1].strip() == reference.strip():
            return Score(1.0, True, found[-1], Verdict.CORRECT)
        return Score(self.boxed, False, found[-1], Verdict.WRONG)
