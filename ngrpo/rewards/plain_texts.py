"""The mathematics reward for the texts of any program, TRL's reward functions among them."""

import math
from collections.abc import Sequence
from typing import Any

from ngrpo.rewards.math import MathReward
from ngrpo.rewards.reasoning import opening


class TextReward:
    r"""Scores plain texts by their last ``\boxed{...}`` after the reasoning.

    ``TextReward()(completions=["\\boxed{7}"], answer=["7"])`` is ``[1.0]``. TRL calls it so as one of its
    ``reward_funcs``, with ``answer`` from the data set's column of that name.

    Args:
        reward: compares the answers; None for `MathReward` with its defaults.
        column: the argument that holds the references.
    """

    def __init__(self, reward: MathReward | None = None, column: str = "answer") -> None:
        self.__name__ = "math"
        self.column = column
        self._reward = reward or MathReward()

    def __call__(
        self,
        completions: Sequence[Any],
        prompts: Sequence[Any] | None = None,
        response_text: Sequence[str] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Returns a reward for each response, None where there is no reference or it is no answer.

        Args:
            completions: N texts, or lists of messages, of which the last is scored.
            prompts: N texts that the responses go on from; one that ends with ``<think>`` has opened the reasoning.
                Messages are not looked at: what a chat template opens only ``response_text`` says.
            response_text: N texts to score instead, with what the prompt opened, as `ngrpo.plugins.trl` gives them.
            columns: N references by the name ``column``; others are not looked at.

        Raises:
            KeyError: there are no references.
        """
        texts = response_text
        if texts is None:
            openings = [opening(p) if isinstance(p, str) else "" for p in prompts or [""] * len(completions)]
            texts = [start + _last(completion) for start, completion in zip(openings, completions, strict=True)]
        references = columns[self.column]  # None in rows of a data set that are another reward's
        scores = self._reward(texts, ["" if one is None else str(one) for one in references])
        return [None if math.isnan(score.reward) else score.reward for score in scores]

    def close(self) -> None:
        """Ends the processes that compare answers; a later call starts them again."""
        self._reward.close()


def _last(completion: Any) -> str:
    """Returns a text, or what the last message says: a text, or a list of parts of which some are text."""
    said = completion if isinstance(completion, str) else completion[-1]["content"]
    if isinstance(said, list):
        return "".join(str(part["text"]) for part in said if part.get("type") == "text")
    return str(said)
