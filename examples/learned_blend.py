"""A strategy that learns: the share of the second most likely token in the blend is trained with the policy."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.exploration.base import Embed, Exploration, RowContext, Step, StepContext


@dataclass(frozen=True)
class LearnedBlend(Exploration):
    """x_t = (1 - a) E[v_1] + a E[v_2], a = sigmoid(share), with probability ``rate``."""

    rate: float = 0.5
    lr: float = 0.1
    width: int = 2
    end_token: str | None = "</think>"

    def initial_parameters(self, dim: int) -> dict[str, Tensor]:
        """Float32; its value is logged as exploration/learned/share."""
        return {"share": torch.tensor([-1.0])}

    def learning_rates(self) -> dict[str, float]:
        """One for each of them."""
        return {"share": self.lr}

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Records the two ids; the weights come from the parameter."""
        ids = logits.topk(2).indices
        token = ctx.sample(logits)
        mixed = (ctx.uniform("gate") < self.rate) & ~ctx.ended & ~ctx.is_end(token)
        return Step(token, mixed, ids, torch.full_like(logits[:, :2], 0.5))

    def inputs(self, embed: Embed, step: Step, ctx: RowContext, parameters: Mapping[str, Tensor]) -> Tensor:
        """Called by the engine, and by the trainer with gradient."""
        first, second = embed(step.ids).unbind(-2)
        share = parameters["share"].sigmoid().to(first.dtype)
        return (1 - share) * first + share * second
