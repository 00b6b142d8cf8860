r"""A reward for the format: exactly one ``\boxed{...}``."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.rewards.boxed import answers_of
from ngrpo.rewards.terms import Responses


@dataclass(frozen=True)
class OneBox:
    """1 for a response with exactly one complete box after the reasoning, and something in it; 0 for any other.

    Neither a box inside the reasoning nor reasoning that is never closed counts, as for the verifier.

    Attributes:
        reasoning_end: the marker that closes a reasoning block; see `ngrpo.rewards.boxed.answer_of`.
    """

    reasoning_end: str | None = "</think>"

    def __call__(self, responses: Responses) -> Tensor:
        """Returns 0 or 1 for each response; float32 [N]."""
        found = (answers_of(text, self.reasoning_end) for text in responses.texts)
        return torch.tensor([float(len(answers) == 1 and answers != [""]) for answers in found])
