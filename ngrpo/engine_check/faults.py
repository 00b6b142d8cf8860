"""Rollouts as engines with a fault would compute them: their mixtures elsewhere, otherwise, or not at all."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Rollout


def altered(rollouts: Sequence[Rollout], cached: Sequence[Rollout]) -> Iterator[tuple[str, list[Rollout]]]:
    """Yields faults by name, and what is scored in their place.

    Args:
        rollouts: of a strategy that mixes.
        cached: rollouts whose texts begin the prompts of some of them.
    """
    yield "inputs without mixtures", [rollout.without_mixtures() for rollout in rollouts]
    yield "mixtures one position late", [_shifted(rollout, 1) for rollout in rollouts]
    yield "mixtures one position early", [_shifted(rollout, -1) for rollout in rollouts]
    yield "mixtures whose first two weights are swapped", [_swapped(rollout, 0) for rollout in rollouts]
    yield "mixtures whose last two weights are swapped", [_swapped(rollout, -2) for rollout in rollouts]
    if cached:
        yield "prompts in which mixtures of a response are cached", [_after(rollout, cached) for rollout in rollouts]


def _shifted(rollout: Rollout, by: int) -> Rollout:
    positions = rollout.mixture.positions + by
    inside = (positions >= len(rollout.prompt_ids)) & (positions < rollout.tokens)
    return replace(rollout, mixture=Mixture(positions[inside], rollout.mixture.record.map(lambda c: c[inside])))


def _swapped(rollout: Rollout, first: int) -> Rollout:
    record = rollout.mixture.record
    width = record.weights.shape[-1]
    if width < 2:
        return rollout
    order = list(range(width))
    order[first], order[first + 1] = order[first + 1], order[first]
    return replace(rollout, mixture=replace(rollout.mixture, record=record._replace(weights=record.weights[:, order])))


def _after(rollout: Rollout, cached: Sequence[Rollout]) -> Rollout:
    """Adds the mixtures of the rollout whose text the prompt repeats."""
    for one in cached:
        text = torch.cat([one.prompt_ids, one.response_ids])
        if torch.equal(rollout.prompt_ids[: len(text)], text):
            positions = torch.cat([one.mixture.positions, rollout.mixture.positions])
            record = Record.cat([one.mixture.record, rollout.mixture.record])
            return replace(rollout, mixture=Mixture(positions, record))
    return rollout
