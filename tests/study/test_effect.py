"""What a mixed step changes, against rollouts that are continued by hand with stock transformers."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity
from transformers import AutoModelForCausalLM, PreTrainedModel

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.random import gumbel, request_key
from ngrpo.exploration.runtime import compiled as compiled_strategies
from ngrpo.exploration.soft import SoftThinking
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.rewards.math import MathReward
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.study.effect import MixedStep, draw_mixed_step, effect, regenerate
from ngrpo.types.rollouts import Request, Rollout

STOP, TEMPERATURE, LONGEST = 3, 0.8, 20
STRATEGIES = [
    NeighborMixing(rate=0.4),
    NeighborMixing(rate=1.0),
    GaussianSoftTokens(),
    GumbelSoftThinking(),
    SoftThinking(rate=0.5, top_n=4),
]


@pytest.fixture
def make_worker(make_engine: Callable[[], TorchEngine], tiny_source: ModelSource):
    def make(strategy: Exploration) -> RolloutWorker:
        settings = RolloutSettings(1, LONGEST, TEMPERATURE)
        tokenizer = tiny_source.tokenizer()
        return RolloutWorker(make_engine(), tokenizer, MathReward(), strategy, settings, (STOP,), seed=0)

    return make


@pytest.fixture(scope="module")
def stock(tiny_model_path: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(tiny_model_path, attn_implementation="eager").eval()


def fed(model: PreTrainedModel, worker: RolloutWorker, rollout: Rollout) -> Tensor:
    """Input vectors of prompt and response as the rollout had them."""
    table = model.get_input_embeddings().weight.detach()
    inputs = table[torch.cat([rollout.prompt_ids, rollout.response_ids])].clone()
    record = rollout.mixture.record
    if record.vector is not None:
        inputs[rollout.mixture.positions] = record.vector
    else:
        mixtures = (record.weights[..., None] * table[record.ids.long()]).sum(1)
        inputs[rollout.mixture.positions] = mixtures
    return inputs


@torch.no_grad()
def continued(model: PreTrainedModel, inputs: Tensor, tokens: list[int], key: int, prompt: int) -> list[int]:
    """Goes on with plain draws, one token at a time, until the end."""
    table = model.get_input_embeddings().weight
    while tokens[-1:] != [STOP] and len(tokens) < LONGEST:
        logits = model(inputs_embeds=inputs[None]).logits[0, -1].float() / TEMPERATURE
        where = torch.tensor([[prompt + len(tokens)]])
        noise = gumbel(torch.tensor([[key]]), where, "token", torch.arange(len(logits))[None])
        tokens = [*tokens, int((logits + noise[0]).argmax())]
        inputs = torch.cat([inputs, table[tokens[-1:]]])
    return tokens


def by_hand(model: PreTrainedModel, worker: RolloutWorker, one: MixedStep) -> tuple[list[int], list[int], list[int]]:
    rollout, index, prompt = one.rollout, one.index, len(one.rollout.prompt_ids)
    inputs, tokens = fed(model, worker, rollout), rollout.response_ids.tolist()
    until = prompt + index
    mixed = continued(model, inputs[: until + 1], tokens[: index + 1], rollout.key, prompt)
    drawn = continued(model, inputs[:until], tokens[:index], rollout.key, prompt)
    plain = model.get_input_embeddings().weight.detach()[tokens[index]][None]
    kept = continued(model, torch.cat([inputs[:until], plain]), tokens[: index + 1], rollout.key, prompt)
    return mixed, drawn, kept


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: f"{type(strategy).__name__}")
def test_the_three_rollouts_are_those_made_by_hand(strategy, make_worker, requests, stock) -> None:
    worker = make_worker(strategy)
    made = worker.engine.generate(requests, worker.sampling, worker.bound)
    chosen = [one for rollout in made if (one := draw_mixed_step(rollout)) is not None]
    assert len(chosen) > 15
    variants = zip(*(regenerate(worker, chosen, *how) for how in ((0, False), (1, False), (1, True))), strict=True)
    different = [0, 0]
    for one, found in zip(chosen, variants, strict=True):
        expected = by_hand(stock, worker, one)
        assert tuple(rollout.response_ids.tolist() for rollout in found) == expected
        until = len(one.rollout.prompt_ids) + one.index
        assert found[0].mixture.positions.tolist() == [p for p in one.rollout.mixture.positions.tolist() if p <= until]
        for other in found[1:]:
            assert max(other.mixture.positions.tolist(), default=-1) < until
        different[0] += expected[0] != expected[1]
        different[1] += expected[0] != expected[2]
    assert min(different) > 0, "nothing would show if the step made no difference"


def test_shares_are_weighted_by_mixed_steps(make_worker, requests, stock) -> None:
    worker = make_worker(NeighborMixing(rate=0.4))
    found = effect(worker, [request.prompt_ids for request in requests], [request.key for request in requests])
    assert found is not None
    made = worker.engine.generate(requests, worker.sampling, worker.bound)
    total, text, token, following = 0, 0.0, 0.0, 0.0
    for one in (draw_mixed_step(rollout) for rollout in made):
        if one is None:
            continue
        mixed, drawn, _ = by_hand(stock, worker, one)
        total += one.weight
        text += one.weight * (mixed != drawn)
        token += one.weight * (mixed[one.index] != drawn[one.index])
        following += one.weight * (mixed[one.index + 1 : one.index + 2] != drawn[one.index + 1 : one.index + 2])
    shares = found.against_draw
    assert (shares["text"], shares["token"], shares["next_token"]) == pytest.approx(
        (text / total, token / total, following / total), abs=1e-6
    )
    assert found.noise == 0.0
    assert found.against_token["token"] == 0.0
    positions = sum(len(rollout.mixture.positions) for rollout in made)
    assert found.mixed == pytest.approx(positions / sum(rollout.length for rollout in made))
    table = stock.get_input_embeddings().weight.detach()
    cosines = [
        cosine_similarity(weights @ table[ids.long()], table[int(ids[0])], dim=0)
        for rollout in made
        for ids, weights in zip(*rollout.mixture.record[:2], strict=True)
    ]
    assert found.cosine == pytest.approx(float(torch.stack(cosines).mean()), abs=1e-5)


def test_every_mixed_step_is_as_likely() -> None:
    positions = torch.tensor([4, 7, 9])
    picked = []
    for number in range(600):
        rollout = rollout_with(positions, request_key(1, number))
        one = draw_mixed_step(rollout)
        assert one is not None
        assert one.weight == 3
        picked.append(one.index)
    assert sorted(set(picked)) == [2, 5, 7]
    assert all(150 < picked.count(index) < 250 for index in (2, 5, 7))
    assert draw_mixed_step(rollout_with(positions[:0], 1)) is None


def rollout_with(positions: Tensor, key: int) -> Rollout:
    from ngrpo.types.records import Record
    from ngrpo.types.rollouts import Mixture, StopReason

    record = Record(torch.zeros(len(positions), 1), torch.ones(len(positions), 1))
    response = torch.arange(10)
    return Rollout(key, torch.tensor([1, 2]), response, torch.zeros(10), Mixture(positions, record), StopReason.LENGTH)


def test_nothing_mixed_has_no_effect(make_worker) -> None:
    worker = make_worker(TokenSampling())
    assert effect(worker, [(7, 8)], [1]) is None


def test_request_order_does_not_matter(make_worker, requests) -> None:
    """Limits are found by key, not by position."""
    worker = make_worker(NeighborMixing(rate=0.4))
    made = worker.engine.generate(requests, worker.sampling, worker.bound)
    chosen = [one for rollout in made if (one := draw_mixed_step(rollout)) is not None]
    forwards = regenerate(worker, chosen, 0, False)
    backwards = regenerate(worker, chosen[::-1], 0, False)[::-1]
    assert [one.response_ids.tolist() for one in forwards] == [one.response_ids.tolist() for one in backwards]
    assert isinstance(requests[0], Request)


def test_compiled_steps_have_the_same_effect_and_share_their_code(
    make_engine, make_worker, requests: list[Request], tiny_source: ModelSource, monkeypatch
):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True))
    monkeypatch.setattr(compiled_strategies, "_COMPILED", {})
    torch._dynamo.reset()
    prompts, keys = [r.prompt_ids for r in requests], [r.key for r in requests]
    found = []
    for fast in (False, True):
        worker = make_worker(NeighborMixing(rate=0.4))
        worker.engine = make_engine(compile=fast)
        worker.start(torch.device("cpu"))
        found.append(effect(worker, prompts, keys))
    assert found[0] == found[1]
    assert len(compiled_strategies._COMPILED) == 2  # of the strategy, and of it up to any limit
    torch._dynamo.reset()
