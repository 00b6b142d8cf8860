r"""Rewards for the format: exactly one ``\boxed{...}``, or any."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ngrpo.rewards.answers.boxed import has_one_box
from ngrpo.rewards.terms.base import Responses


@dataclass(frozen=True)
class OneBox:
    r"""1 for a response with exactly one complete ``\boxed`` after the reasoning, and an answer in it; 0 for any other.

    Neither a box inside the reasoning nor reasoning that is never closed counts, as for the verifier.

    Attributes:
        reasoning_end: the marker that closes a reasoning block; see `ngrpo.rewards.answers.boxed.answer_of`.
    """

    reasoning_end: str | None = "</think>"

    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __call__(self, responses: Responses) -> Tensor:
        """Returns 0 or 1 for each response; float32 [N]."""
        return torch.tensor([float(has_one_box(text, self.reasoning_end)) for text in responses.texts])


def stated_answer(responses: Responses) -> Tensor:
    """1 for a response that states an answer, right or wrong; 0 for any other; float32 [N].

    With weight 10 beside 90 for right answers: the rewards 100, 10 and 0 of STHT (arXiv 2509.19170).
    """
    return torch.tensor([float(score.answer is not None) for score in responses.scores])


stated_answer.bounds = (0.0, 1.0)  # type: ignore[attr-defined]
