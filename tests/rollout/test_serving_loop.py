"""A record made at step t is fed at step t + 1, not one step late."""

import json
from collections.abc import Mapping
from types import SimpleNamespace

import pytest
import torch
from places import ROOT
from torch import Tensor

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gaussian_top_k import GaussianTopK
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.packing import pack
from ngrpo.rollout.records.buffers import MixingBuffers
from ngrpo.rollout.records.session import Admission, Session, SessionSpec
from ngrpo.rollout.records.split import split_rollouts
from ngrpo.rollout.records.stepper import choose, fill_buffers
from ngrpo.types.rollouts import Request, Rollout

GOLDEN = json.loads((ROOT / "tests/vectors.json").read_text())["serving_loop_lag"]
TOKENS = GOLDEN["inputs"]["tokens"]
STRATEGIES: list[Exploration] = [
    NeighborMixing(rate=1.0, end_token=None),
    GaussianSoftTokens(end_token=None),
    GaussianTopK(k=3, end_token=None),
    HybridReasoning(r_min=0.5, r_max=0.6, end_token=None),
]


def names(fed: list[Tensor], entries: list[Tensor], plain: list[Tensor]) -> list[str]:
    """Calls each fed vector by what it equals."""
    known = {f"entry(x{i + 1})": vector for i, vector in enumerate(entries)}
    known |= {f"E[x{i + 1}] (plain)": vector for i, vector in enumerate(plain)}
    return [next((name for name, v in known.items() if torch.allclose(v, vector, atol=1e-6)), "?") for vector in fed]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_torch_engine(strategy, make_engine, bound, requests, sampling, monkeypatch):
    engine, fed = make_engine(), []
    forward, made = engine._forward, bound(engine, strategy)

    def noted_forward(inputs, positions, plan):
        if inputs.shape[1] == 1:
            fed.append(inputs[0, 0].clone())
        return forward(inputs, positions, plan)

    monkeypatch.setattr(engine, "_forward", noted_forward)
    (rollout,) = engine.generate(requests[:1], sampling, made)
    assert rollout.length > TOKENS
    table = engine.embedding()
    entries = list(replayed(rollout, strategy, table, made.parameters))[:TOKENS]
    assert names(fed[:TOKENS], entries, list(table[rollout.response_ids[:TOKENS]])) == GOLDEN["outputs"]["no_overlap"]


@pytest.mark.parametrize("strategy", STRATEGIES[1:])
def test_the_vllm_session(strategy: Exploration):
    """Choose, then fill the buffers for the chosen position; then for all positions at once, as after a preemption."""
    prompt, vocabulary, dim = 3, 12, 4
    table = torch.randn(vocabulary, dim, generator=torch.Generator().manual_seed(0))
    spec = SessionSpec(
        strategy=strategy,
        tables=strategy.prepare(table, Vocabulary(vocabulary, frozenset(), {})),
        parameters=strategy.initial_parameters(dim),
        end_ids=(),
        temperature=0.8,
        max_new_tokens=TOKENS,
        slots=2,
    )
    session, buffers = Session(spec, table, torch.device("cpu")), MixingBuffers(32, 1, torch.device("cpu"), table)
    session.assign(Admission(0, 0, 5, 9))
    session.assign(Admission(1, 1, 77, prompt))
    session.write_assigned()
    assert buffers.tensors.vectors is not None
    slot, fed, tokens = torch.tensor([1]), [], []
    for index in range(TOKENS):
        logits = torch.randn(1, vocabulary, generator=torch.Generator().manual_seed(index)) * 2
        tokens.append(int(choose(session, logits, slot, torch.tensor([prompt + index]))))
        fill_buffers(session, buffers, slot, torch.tensor([prompt + index]))
        assert buffers.tensors.mixed[0]
        fed.append(buffers.tensors.vectors[0].clone())
    entries = replayed(collected(session, prompt), strategy, table, spec.parameters)
    assert names(fed, list(entries), list(table[tokens])) == GOLDEN["outputs"]["no_overlap"]

    everything = torch.arange(prompt + TOKENS)
    fill_buffers(session, buffers, torch.ones_like(everything), everything)
    assert buffers.tensors.mixed[: len(everything)].tolist() == [False] * prompt + [True] * TOKENS
    torch.testing.assert_close(buffers.tensors.vectors[prompt : len(everything)], entries)


def collected(session: Session, prompt: int) -> Rollout:
    """The second slot's rollout."""
    requests = [Request((0,) * 9, 5), Request((0,) * prompt, 77)]
    records = session.collect([0, 1], [TOKENS, TOKENS])
    outputs = [SimpleNamespace(token_ids=row.tolist(), finish_reason="length") for row in records.tokens]
    return split_rollouts(requests, outputs, records)[1]


def replayed(rollout: Rollout, strategy: Exploration, table: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
    """The vectors that the trainer makes of a record."""
    batch = pack([rollout])
    context = batch.context(batch.mixed_slots, table)
    return strategy.inputs(lambda ids: table[ids], batch.mixed_steps(), context, parameters)
