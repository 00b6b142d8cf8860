"""A strategy that knows time and state: after a blend it rests, longer and longer as training goes on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration, Step, StepContext


@dataclass(frozen=True)
class RestingBlend(Exploration):
    """Feeds the two most likely tokens, p renormalised, then ``rest`` tokens plainly; from iteration ``over`` on."""

    rest: int = 8
    over: int = 20
    width: int = 2
    end_token: str | None = "</think>"

    stateful = True

    def schedule(self, progress: Tensor) -> dict[str, Tensor]:
        """The rest grows from 0; it is logged as exploration/rest."""
        return {"rest": (self.rest * progress // self.over).clamp(max=self.rest)}

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """The state is the number of steps still to rest."""
        probs, ids = logits.softmax(-1).topk(2)
        token = ctx.sample(logits)
        mixed = (ctx.state == 0) & ~ctx.ended & ~ctx.is_end(token)
        state = torch.where(mixed, self.schedule(ctx.progress)["rest"], (ctx.state - 1).clamp(min=0)).int()
        return Step(token, mixed, ids, probs / probs.sum(-1, keepdim=True), state=state)
