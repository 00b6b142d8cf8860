"""The decode step of a strategy, the same tensor function in every engine."""

from typing import NamedTuple

import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration, Step, StepContext
from ngrpo.types.support import NO_ID
from ngrpo.utils.tempered import tempered


class Steering(NamedTuple):
    """The tokens that requests ask for instead of having them drawn, of R rows.

    Attributes:
        likeliest: the row emits its likeliest token, wherever the strategy mixes nothing; bool [R].
        forced: the token that a row must emit, which is fed plainly; int64 [R], `NO_ID` in rows that decide. None for
            no row.
    """

    likeliest: Tensor
    forced: Tensor | None = None


def decide(
    strategy: Exploration,
    logits: Tensor,
    temperature: float,
    context: StepContext,
    explore: Tensor | None,
    steering: Steering | None = None,
) -> tuple[Step, Tensor]:
    """Chooses tokens and mixtures and scores them.

    Args:
        strategy: decides the rows of ``explore``; the others are sampled plainly.
        logits: the model's, any float dtype; [R, V].
        temperature: tau.
        context: of the same rows.
        explore: bool [R]; None for all rows, which saves the second draw.
        steering: tokens that are asked for; None for none, which saves a pass over the logits.

    Returns:
        The step and its log-probs, float32 [R].
    """
    scaled = tempered(logits, temperature)
    step = strategy.step(scaled, context)
    if explore is not None:
        token = step.token.where(explore, context.sample(scaled))
        step = step.with_tokens(token, step.mixed & explore, ~explore)
    if steering is not None:
        step = _steered(step, scaled, steering)
    return step, strategy.log_prob(scaled, step, context)


def _steered(step: Step, logits: Tensor, steering: Steering) -> Step:
    """Puts in the tokens that are asked for; one outside of its row's support is scored by the whole softmax."""
    asked = steering.likeliest & ~step.mixed
    token, mixed = torch.where(asked, logits.argmax(-1), step.token), step.mixed
    if steering.forced is not None:
        forced = steering.forced != NO_ID
        token, mixed, asked = torch.where(forced, steering.forced, token), mixed & ~forced, asked | forced
    if step.support is not None:
        asked = asked & ~(step.support == token[:, None]).any(-1)
    return step.with_tokens(token, mixed, asked)
