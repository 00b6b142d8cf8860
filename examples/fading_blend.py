"""An annealed strategy: blends often at the beginning of a training, and no more after ``over`` iterations."""

from dataclasses import dataclass

from torch import Tensor

from ngrpo.exploration.base import Exploration, Step, StepContext


@dataclass(frozen=True)
class FadingBlend(Exploration):
    """Feeds the two most likely tokens with a probability that falls to 0 in a line."""

    rate: float = 0.5
    over: int = 20
    width: int = 2
    end_token: str | None = "</think>"

    def schedule(self, progress: Tensor) -> dict[str, Tensor]:
        """``progress`` is the number of finished iterations; the value is logged as exploration/rate."""
        return {"rate": self.rate * (1 - progress / self.over).clamp(min=0)}

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Logits are [rows, vocabulary]."""
        probs, ids = logits.softmax(-1).topk(2)
        token = ctx.sample(logits)
        chosen = ctx.uniform("gate") < self.schedule(ctx.progress)["rate"]
        return Step(token, chosen & ~ctx.ended & ~ctx.is_end(token), ids, probs / probs.sum(-1, keepdim=True))
