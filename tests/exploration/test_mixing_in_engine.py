"""Which positions of generated rollouts are mixed, recomputed from the hash and from stock transformers."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.random import uniform
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.types.rollouts import Request, Rollout

MIXING = NeighborMixing(rate=0.5, k=3)


@pytest.fixture(scope="module")
def stock_model(tiny_model_path: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(tiny_model_path, attn_implementation="eager").eval()


@torch.no_grad()
def anchors(model: PreTrainedModel, rollout: Rollout) -> list[int]:
    """The most likely token at each response position, given the recorded inputs."""
    table = model.get_input_embeddings().weight
    inputs = table[torch.cat([rollout.prompt_ids, rollout.response_ids])].clone()
    for slot, ids, weights in zip(rollout.mixture.positions, *rollout.mixture.record[:2], strict=True):
        inputs[slot] = weights @ table[ids]
    logits = model(inputs_embeds=inputs[None]).logits[0]
    return logits[len(rollout.prompt_ids) - 1 : -1].argmax(-1).tolist()


def check_gates(
    model: PreTrainedModel, requests: list[Request], rollouts: list[Rollout], end_ids: set[int]
) -> Counter[str]:
    """Compares every position with the rule of the paper; returns how often each case came."""
    cases: Counter[str] = Counter()
    for request, rollout in zip(requests, rollouts, strict=True):
        mixed_slots = set(rollout.mixture.positions.tolist())
        ended = False
        slots = len(request.prompt_ids) + torch.arange(rollout.length)
        gates = uniform(torch.tensor(request.key), slots, "gate") < MIXING.rate
        steps = (slots.tolist(), gates.tolist(), rollout.response_ids.tolist(), anchors(model, rollout))
        for slot, gate, token, anchor in zip(*steps, strict=True):
            mixed = gate and not ended and anchor not in end_ids
            assert (slot in mixed_slots) == mixed
            assert not mixed or token == anchor
            cases["mixed" if mixed else "ended" if gate and ended else "anchor ends" if gate else "drawn"] += 1
            ended = ended or token in end_ids
    return cases


def test_gates_equal_the_hash_at_every_position(make_engine, bound, requests, sampling, stock_model) -> None:
    engine = make_engine(7)
    rollouts = engine.generate(requests, sampling, bound(engine, MIXING))
    cases = check_gates(stock_model, requests, rollouts, {5})
    assert cases["mixed"] > 100
    assert cases["drawn"] > 100


def test_nothing_is_mixed_after_the_end_token_nor_the_end_token_itself(
    make_engine, bound, requests, sampling, stock_model
) -> None:
    engine = make_engine(7)
    made = bound(engine, replace(MIXING, end_token=None))
    assert made.end_ids == ()
    free = engine.generate(requests, sampling, made)
    likely = {i for i, _ in Counter(i for r in free for i in anchors(stock_model, r)).most_common(3)}
    rollouts = engine.generate(requests, sampling, BoundExploration(MIXING, made.tables, tuple(likely)))
    cases = check_gates(stock_model, requests, rollouts, likely)
    assert min(cases[case] for case in ("mixed", "ended", "anchor ends", "drawn")) > 10
