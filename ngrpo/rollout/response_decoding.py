"""Texts of responses: as they are, as a reward gets them, and without the token that ended them."""

from collections.abc import Sequence
from typing import Any

from ngrpo.rewards.reasoning import opening
from ngrpo.types.problems import Prompt
from ngrpo.types.rollouts import Rollout, StopReason

_TAIL = 8
"""Tokens at the end of a prompt in which a generation prompt's `<think>` is looked for."""


class ResponseDecoder:
    """Turns the tokens of responses into texts.

    Args:
        tokenizer: a transformers tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def texts(self, rollouts: Sequence[Rollout]) -> list[str]:
        """Returns the text of each response, special tokens included."""
        texts: list[str] = self._tokenizer.batch_decode(
            [r.response_ids.tolist() for r in rollouts],
            skip_special_tokens=False,
            clean_up_tokenization_spaces=False,
        )
        return texts

    def judged(self, prompts: Sequence[Prompt], samples: int, texts: Sequence[str]) -> list[str]:
        """Returns the responses as the reward gets them, each after the reasoning marker that its prompt ends with.

        Args:
            prompts: P of them.
            samples: responses of each.
            texts: of the P x samples responses, those of a prompt next to each other.
        """
        openings = [self._opening(prompt) for prompt in prompts for _ in range(samples)]
        return [opening + text for opening, text in zip(openings, texts, strict=True)]

    def completions(self, rollouts: Sequence[Rollout], texts: Sequence[str], stop_ids: Sequence[int]) -> list[str]:
        """Returns the responses without the token that ended them, one of ``stop_ids``."""
        ends = {number: self._tokenizer.decode([number]) for number in stop_ids}
        return [
            text.removesuffix(ends.get(int(rollout.response_ids[-1]), ""))
            if rollout.stop_reason is StopReason.STOP
            else text
            for rollout, text in zip(rollouts, texts, strict=True)
        ]

    def _opening(self, prompt: Prompt) -> str:
        """Returns the reasoning marker that the prompt ends with, if it does."""
        return opening(self._tokenizer.decode(list(prompt.ids[-_TAIL:])))
