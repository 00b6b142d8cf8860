"""Soft Thinking."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, Step, StepContext

_LONGEST_RUN = 2**31 - 1
"""What the state of a row, an int32, can count to."""


@dataclass(frozen=True)
class SoftThinking(Exploration):
    """Soft Thinking: x_t = sum_{i in top n} p_i E[i],  p = softmax(z_t) renormalised on these; the text is the argmax.

    Soft Thinking (arXiv 2505.15778) is a method of inference without a log-prob. Trained with, it is scored as N-GRPO's
    mixtures are: by the argmax token's log-prob. (N-GRPO's paper describes its Soft Thinking baseline as the sum over
    the entire vocabulary.) The end token is fed plainly.

    Cold stop: once the entropy of the full softmax was below ``cold_entropy`` for ``cold_steps`` steps in a row, the
    end token replaces the token and the vector of that step, and what follows is drawn as usual. A step of higher
    entropy starts the count anew. Without it loops of repetition are common; it needs a tokenizer with the end token.

    At rate 1 everything up to the end token is deterministic, so the rollouts of a group are identical but for what is
    drawn after it. A lower rate, which is an extension of this project, keeps the rollouts of a group different: each
    step is soft with probability rate, else drawn as usual.

    Attributes:
        top_n: ids in the mixture.
        rate: probability that a step is soft.
        cold_entropy: in nats; 0 never stops.
        cold_steps: length of the run that stops.
        end_token: text of the token that ends the reasoning; None never ends it.
    """

    top_n: int = 15
    rate: float = 1.0
    cold_entropy: float = 0.1
    cold_steps: int = 256
    end_token: str | None = "</think>"

    stateful = True

    def __post_init__(self) -> None:
        for name in ("top_n", "cold_steps"):
            if getattr(self, name) < 1:
                raise SettingError(f"exploration.{name}={getattr(self, name)} is too small; choose 1 or more.")
        if self.cold_steps > _LONGEST_RUN:  # compared with the counter it would be another number, or none
            raise SettingError(
                f"exploration.cold_steps={self.cold_steps} is more than {_LONGEST_RUN}; set exploration.cold_entropy=0 "
                "to never stop."
            )
        if not 0.0 <= self.rate <= 1.0:
            raise SettingError(f"exploration.rate={self.rate} is not a probability; choose a value in [0, 1].")
        if not self.cold_entropy >= 0.0:
            raise SettingError(f"exploration.cold_entropy={self.cold_entropy} is negative; 0 never stops.")

    @property
    def width(self) -> int:  # type: ignore[override]
        """K = top_n."""
        return self.top_n

    @property
    def deterministic(self) -> bool:  # type: ignore[override]
        """Whether nothing is drawn before the reasoning ends."""
        return self.rate == 1.0

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Mixes until the end token or the cold stop."""
        largest, ids = logits.topk(self.top_n)
        soft = (ctx.uniform("gate") < self.rate) & ~ctx.ended
        token = torch.where(soft, ids[:, 0], ctx.sample(logits))
        run = torch.where(entropy(logits) < self.cold_entropy, ctx.state + 1, 0).int()
        if len(ctx.end_ids):
            stop = (run >= self.cold_steps) & ~ctx.ended
            token = torch.where(stop, ctx.end_ids[0], token)
        return Step(token, soft & ~ctx.is_end(token), ids, largest.softmax(-1), state=run)


def entropy(logits: Tensor) -> Tensor:
    """Returns the entropy of softmax(logits) in nats; [R, V] -> [R]."""
    log_probs = logits.log_softmax(-1)
    return -(log_probs.exp() * log_probs).sum(-1)
