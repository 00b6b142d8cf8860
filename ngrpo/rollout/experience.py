"""A rank's share of a rollout batch: prompts, rollouts, rewards."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.data.types import Prompt
from ngrpo.rewards.math import Score
from ngrpo.rollout.types import Rollout, StopReason


@dataclass(frozen=True)
class Experience:
    """P prompts with G rollouts each, group by group.

    Attributes:
        prompts: P prompts.
        rollouts: P * G rollouts; those of prompt p are [p * G, (p + 1) * G).
        keys: key of the problem that each rollout answers; P * G. Advantages are made from groups of equal keys.
        texts: the responses as text, special tokens kept; P * G.
        scores: P * G.
        generate_s: wall-clock seconds spent generating.
        reward_s: wall-clock seconds spent scoring.
    """

    prompts: list[Prompt]
    rollouts: list[Rollout]
    keys: list[int]
    texts: list[str]
    scores: list[Score]
    generate_s: float
    reward_s: float

    @property
    def group_size(self) -> int:
        """G."""
        return len(self.rollouts) // len(self.prompts)

    @property
    def rewards(self) -> Tensor:
        """Rewards, NaN where the reference could not be used; float32 [P, G]."""
        # Named, since half-precision training changes the default dtype.
        return torch.tensor([s.reward for s in self.scores], dtype=torch.float32).view(len(self.prompts), -1)

    @property
    def correct(self) -> Tensor:
        """Whether each answer is right; bool [P, G]."""
        return torch.tensor([s.correct for s in self.scores]).view(len(self.prompts), -1)

    @property
    def outcomes(self) -> Tensor:
        """A number for each final answer, equal where the texts are (no answer is one of them); int64 [P * G]."""
        numbers: dict[str | None, int] = {}
        return torch.tensor([numbers.setdefault(s.answer, len(numbers)) for s in self.scores])

    @property
    def tokens(self) -> int:
        """Response tokens in all."""
        return sum(r.length for r in self.rollouts)

    @property
    def truncated(self) -> Tensor:
        """Whether each rollout ran into the length limit; bool [P * G]."""
        return torch.tensor([r.stop_reason is StopReason.LENGTH for r in self.rollouts])
