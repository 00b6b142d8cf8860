"""The tokens of an iteration, and an estimate of its seconds."""

from dataclasses import dataclass

from ngrpo.modeling.cost import PassCost
from ngrpo.planning.cards import Card
from ngrpo.planning.run_settings import RunSettings

_RECOMPUTED = {"off": 3, "selective": 3.2, "full": 4}
"""Forward passes that a forward and a backward pass are worth, by checkpointing."""


@dataclass(frozen=True)
class TimePlan:
    """An iteration in which every response is as long as it may be; seconds are None where nothing says them.

    Attributes:
        tokens: of all sequences, prompts included.
        generate_s: of rollouts.
        score_s: of the passes without gradients: the reference's.
        update_s: of the optimiser steps.
        source: where the figures come from.
    """

    tokens: int
    generate_s: float | None
    score_s: float | None
    update_s: float | None
    source: str


def update_seconds(run: RunSettings, flops: float) -> tuple[float, float]:
    """Returns the seconds of scoring and of the update, given the operations a second of one device."""
    cost = PassCost.of(run.config)(run.longest)
    rollouts = run.prompts_per_batch * run.group_size
    forward = cost * rollouts / (flops * run.devices)
    return forward * run.reference, forward * _RECOMPUTED[run.checkpointing]


def plan_time(run: RunSettings, flops: float | None, card: Card | None, numbers: int, source: str) -> TimePlan:
    """Estimates an iteration.

    Args:
        run: the settings.
        flops: operations a second in the update, of one device; None where they are not known.
        card: known figures for vLLM; None where there are none.
        numbers: of the model's parameters.
        source: where both come from.
    """
    rollouts = run.prompts_per_batch * run.group_size
    score_s, update_s = (None, None) if flops is None else update_seconds(run, flops)
    generate_s = None
    if card is not None:
        a_device = -(-rollouts // run.data_ranks)
        generate_s = card.generation_s(a_device, run.engine.slots, run.max_new_tokens, numbers * 2)
    return TimePlan(rollouts * run.longest, generate_s, score_s, update_s, source)
