"""The effect of mixing: the fraction of mixed steps that change what follows.

Of each rollout one mixed step t is drawn, and three rollouts with the same key are compared, none of which is mixed
after t:

    mixed:  the strategy up to and including t
    drawn:  the strategy up to t - 1; at t an ordinary draw, fed plainly
    token:  the strategy up to t - 1; at t its token, fed plainly

All randomness is a function of key and position, so `mixed` and `drawn` differ in that step alone, and `mixed` and
`token` in the vector that is fed there. Fractions are weighted by the number of mixed steps in a rollout, one of which
was drawn, and so are estimates for all mixed steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, embedding

from ngrpo.exploration.random import uniform
from ngrpo.exploration.runtime.bound import BoundExploration, bind
from ngrpo.modeling.packing import pack
from ngrpo.rewards.answers.boxed import after_reasoning, last_boxed
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.study.mix_until import Limits, MixUntil
from ngrpo.study.results import Effect
from ngrpo.types.rollouts import Request, Rollout


@dataclass(frozen=True)
class MixedStep:
    """A mixed step of a rollout.

    Attributes:
        rollout: the rollout, mixed to its end.
        index: of the step in the response, from 0.
        weight: mixed steps in the rollout.
    """

    rollout: Rollout
    index: int
    weight: int


def effect(worker: RolloutWorker, prompts: Sequence[tuple[int, ...]], keys: Sequence[int]) -> Effect | None:
    """Measures the effect of mixing with the worker's strategy and engine.

    Args:
        worker: started.
        prompts: token ids of each rollout's prompt.
        keys: of each rollout, all different.

    Returns:
        None if nothing was mixed.
    """
    requests = [Request(ids, key) for ids, key in zip(prompts, keys, strict=True)]
    made = worker.engine.generate(requests, worker.sampling, worker.bound)
    chosen = [one for rollout in made if (one := draw_mixed_step(rollout)) is not None]
    if not chosen:
        return None
    mixed, drawn, token = (regenerate(worker, chosen, *how) for how in ((0, False), (1, False), (1, True)))
    kept = [same_until(one.rollout, rollout, one.index) for one, rollout in zip(chosen, mixed, strict=True)]
    weights = torch.tensor([float(one.weight) for one in chosen])
    cosines = torch.cat([cosine(one.rollout, worker.bound, worker.engine.embedding()) for one in chosen])
    return Effect(
        steps=len(chosen),
        mixed=sum(len(rollout.mixture.positions) for rollout in made) / sum(rollout.length for rollout in made),
        cosine=float(cosines.mean()),
        against_draw=changed_fractions(worker, chosen, mixed, drawn, weights),
        against_token=changed_fractions(worker, chosen, mixed, token, weights),
        noise=1.0 - sum(kept) / len(kept),
    )


def draw_mixed_step(rollout: Rollout) -> MixedStep | None:
    """Draws one of a rollout's mixed steps uniformly; None if it has none."""
    positions = rollout.mixture.positions
    if not len(positions):
        return None
    draw = uniform(torch.tensor([rollout.key]), torch.tensor([0]), "effect")
    index = int(positions[int(draw * len(positions))]) - len(rollout.prompt_ids)
    return MixedStep(rollout, index, len(positions))


def regenerate(worker: RolloutWorker, chosen: Sequence[MixedStep], before: int, token_kept: bool) -> list[Rollout]:
    """Generates the rollouts again, mixed up to the chosen step (``before`` 0) or up to the one before it (1)."""
    last = [len(one.rollout.prompt_ids) + one.index - before for one in chosen]
    limits = Limits(
        keys=torch.tensor([one.rollout.key for one in chosen]),
        last=torch.tensor(last),
        token_kept=torch.tensor([token_kept] * len(chosen)),
    )
    strategy = MixUntil(worker.bound.strategy, limits)
    bound = bind(strategy, worker.engine.embedding(), worker.vocabulary, worker.bound.parameters)
    bound = replace(bound, progress=worker.bound.progress)
    requests = [Request(tuple(one.rollout.prompt_ids.tolist()), one.rollout.key) for one in chosen]
    return worker.engine.generate(requests, worker.sampling, bound)


def same_until(one: Rollout, other: Rollout, index: int) -> bool:
    """Tells whether two rollouts have the same tokens up to and including an index."""
    return one.response_ids[: index + 1].tolist() == other.response_ids[: index + 1].tolist()


def changed_fractions(
    worker: RolloutWorker,
    chosen: Sequence[MixedStep],
    mixed: Sequence[Rollout],
    others: Sequence[Rollout],
    weights: Tensor,
) -> dict[str, float]:
    """Returns the fractions of steps with another token at t, at t + 1, another text, another final answer."""
    rows = []
    for one, left, right in zip(chosen, mixed, others, strict=True):
        here, after = one.index, one.index + 1
        answers = [last_boxed(after_reasoning(worker.tokenizer.decode(r.response_ids.tolist()))) for r in (left, right)]
        rows.append(
            (
                token_at(left, here) != token_at(right, here),
                token_at(left, after) != token_at(right, after),
                left.response_ids.tolist() != right.response_ids.tolist(),
                answers[0] != answers[1],
            )
        )
    differ = (torch.tensor(rows).float() * weights[:, None]).sum(0) / weights.sum()
    return dict(zip(("token", "next_token", "text", "answer"), differ.tolist(), strict=True))


def token_at(rollout: Rollout, index: int) -> int:
    """Returns the token at an index of the response; -1 beyond its end."""
    return int(rollout.response_ids[index]) if index < rollout.length else -1


@torch.no_grad()
def cosine(rollout: Rollout, bound: BoundExploration, table: Tensor) -> Tensor:
    """Returns cos(x_t, E[anchor]) of a rollout's mixed steps; the anchor is the first id, or the emitted token."""
    batch = pack([rollout]).to(table.device)
    step = batch.mixed_steps()
    embed = partial(embedding, weight=table)
    fed = bound.strategy.inputs(embed, step, batch.context(batch.mixed_slots, table), bound.parameters)
    anchors = embed(step.ids[:, 0] if step.ids.shape[1] else step.token)
    return cosine_similarity(fed.float(), anchors.float(), dim=-1).cpu()
