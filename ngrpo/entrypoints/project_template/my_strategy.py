"""A strategy of your own: feed a blend of the two most likely tokens wherever the model is unsure."""

from dataclasses import dataclass

from torch import Tensor

from ngrpo.exploration.base import Exploration, Step, StepContext


@dataclass(frozen=True)
class BlendTopTwo(Exploration):
    """x_t = p_1 E[v_1] + p_2 E[v_2], p renormalised, where max p < threshold; the token is sampled as usual.

    Attributes:
        threshold: probability of the most likely token below which the model counts as unsure.
        width: ids in a mixture.
        end_token: after it, in the answer, nothing is blended.
    """

    threshold: float = 0.6
    width: int = 2
    end_token: str | None = "</think>"

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Logits are [rows, vocabulary], already divided by the temperature; no loop over rows, no if on a value."""
        probs, ids = logits.softmax(-1).topk(2)
        token = ctx.sample(logits)
        mixed = (probs[:, 0] < self.threshold) & ~ctx.ended & ~ctx.is_end(token)
        return Step(token, mixed, ids, weights=probs / probs.sum(-1, keepdim=True))
