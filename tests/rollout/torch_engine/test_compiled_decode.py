"""Compiled decode steps make the rollouts of plain ones, in few graphs."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch
from test_slot_attention import by_hand
from test_torch_engine import MIXING, same
from torch._dynamo.utils import counters

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.neighbor_annealed import AnnealedNeighborMixing
from ngrpo.exploration.runtime import compiled as compiled_strategies
from ngrpo.exploration.token import TokenSampling
from ngrpo.rollout.torch_engine import kv_cache
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.torch_engine.kv_cache import SlotCache, slot_attention

STRATEGIES = [TokenSampling(), MIXING, GaussianSoftTokens(), GumbelSoftThinking()]

FADING = AnnealedNeighborMixing(rate_start=0.8, rate_end=0.0, schedule_iterations=10)


@pytest.fixture(autouse=True)
def nothing_compiled_yet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compiled_strategies, "_COMPILED", {})
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def without_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are made and run as they are; nothing may fall out of them."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: type(strategy).__name__)
def test_rollouts_are_the_same(without_code, make_engine, bound, requests, sampling, strategy: Exploration):
    """In slots that are dropped and filled again."""
    plain, fast = make_engine(7), make_engine(7, compile=True)
    asked = [
        replace(one, likeliest=number % 2 > 0, forced_token=30 if number % 3 == 1 else None)
        for number, one in enumerate(requests)
    ]
    for some, settings in ((requests, sampling), (asked, replace(sampling, distributions=True))):
        expected = plain.generate(some, settings, bound(plain, strategy))
        assert len({rollout.length for rollout in expected}) > 1
        made = fast.generate(some, settings, bound(fast, strategy))
        assert all(same(a, b) for a, b in zip(made, expected, strict=True))


def test_few_graphs_serve_all_sizes(without_code, make_engine, bound, requests, sampling):
    """One of the layers and one of the step; 8 slots would be as many as a head has numbers, which makes another."""
    engine = make_engine(6, compile=True)
    for count in (24, 9, 4):
        engine.generate(requests[:count], sampling, bound(engine, MIXING))
        engine.sleep()
    assert counters["stats"]["unique_graphs"] == 2


def test_few_graphs_serve_all_lengths_of_the_kernel_for_half_precision(
    without_code, monkeypatch, make_engine, bound, requests, sampling
):
    """The compiler takes the first length for a constant, and the second for any."""
    plain = make_engine(6)
    expected = plain.generate(requests, sampling, bound(plain, MIXING))
    monkeypatch.setattr(kv_cache, "packed_decode", by_hand)
    engine = make_engine(6, compile=True)
    make = engine._cache_for

    def with_kernel(slots: int, length: int) -> SlotCache:
        cache = make(slots, length)
        cache.flash = True
        return cache

    monkeypatch.setattr(engine, "_cache_for", with_kernel)
    for count in (24, 9, 4):
        made = engine.generate(requests[:count], sampling, bound(engine, MIXING))
        assert all(same(a, b) for a, b in zip(made, expected, strict=False))
        engine.sleep()
    assert counters["stats"]["unique_graphs"] <= 3


def test_no_strategy_is_one_too_many(without_code, make_engine, bound, requests, sampling):
    """The compiler gives a function up after eight graphs."""
    engine = make_engine(7, compile=True)
    for number in range(10):
        engine.generate(requests[:5], sampling, bound(engine, replace(MIXING, k=2 + number)))
    assert counters["stats"]["unique_graphs"] == 11


def test_no_way_to_decide_is_one_too_many(without_code, make_engine, bound, requests, sampling):
    """At a temperature of one or another, with plain rows or without, with tokens that are asked for or without."""
    plain, fast = make_engine(7), make_engine(7, compile=True)
    for temperature, explored, asked in product((0.7, 1.0, 0.9), (0, 2), (False, True)):
        settings = replace(sampling, temperature=temperature)
        some = [
            replace(one, explore=number >= explored, likeliest=asked, forced_token=30 if asked else None)
            for number, one in enumerate(requests[:5])
        ]
        expected, made = (engine.generate(some, settings, bound(engine, MIXING)) for engine in (plain, fast))
        assert all(same(a, b) for a, b in zip(made, expected, strict=True))


def test_a_schedule_moves_on_inside_one_graph(without_code, make_engine, bound, requests, sampling):
    """The finished iterations are an input of the graph, and no constant of it."""
    plain, fast = make_engine(7), make_engine(7, compile=True)
    graphs, mixed = [], []
    for finished in (0, 5, 10):
        made = fast.generate(requests, sampling, bound(fast, FADING).after(finished))
        expected = plain.generate(requests, sampling, bound(plain, FADING).after(finished))
        assert all(same(a, b) for a, b in zip(made, expected, strict=True))
        graphs.append(counters["stats"]["unique_graphs"])
        mixed.append(sum(len(rollout.mixture.positions) for rollout in made))
    assert mixed[0] > mixed[1] > mixed[2] == 0
    assert graphs[0] == graphs[2]


def test_rows_that_do_not_explore_are_compiled_too(without_code, make_engine, bound, requests, sampling):
    some = [replace(request, explore=number % 2 == 0) for number, request in enumerate(requests)]
    plain, fast = make_engine(7), make_engine(7, compile=True)
    made = fast.generate(some, sampling, bound(fast, MIXING))
    assert all(same(a, b) for a, b in zip(made, plain.generate(some, sampling, bound(plain, MIXING)), strict=True))
    assert {len(rollout.mixture.positions) > 0 for rollout in made[1::2]} == {False}


def test_prefills_are_not_compiled(without_code, make_engine, bound, requests, sampling):
    engine = make_engine(7, compile=True)
    forwards = [layer.forward for layer in engine.lm.base_model.layers]
    engine.generate(requests[:1], sampling, bound(engine, MIXING))  # and neither is a row alone
    assert counters["stats"]["unique_graphs"] == 0
    assert [layer.forward for layer in engine.lm.base_model.layers] == forwards


def test_the_operator_is_what_it_says():
    torch.manual_seed(0)
    query, data = torch.randn(3, 4, 1, 8), torch.randn(2, 2, 5, 2, 6, 8)
    key, value = torch.randn(2, 3, 2, 1, 8)
    positions = torch.tensor([0, 3, 4])
    visible = (torch.arange(5) <= positions[:, None])[:, None, None, :]
    arguments = (query, key, value, data, torch.tensor(1), positions, visible, 0.5)
    torch.library.opcheck(slot_attention, arguments)
    before = data.clone()
    output = slot_attention(*arguments)
    for row, place in enumerate(positions.tolist()):
        for channel, new in enumerate((key, value)):
            before[1, channel, row, :, place] = new[row, :, 0]
        for head in range(4):
            keys, values = data[1, :, row, head // 2, : place + 1]
            weights = (keys @ query[row, head, 0] * 0.5).softmax(0)
            torch.testing.assert_close(output[row, head, 0], weights @ values)
    assert torch.equal(data, before)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [TokenSampling(), MIXING], ids=lambda strategy: type(strategy).__name__)
def test_code_of_the_compiler_changes_nothing(make_engine, bound, requests, sampling, strategy: Exploration):
    plain, fast = make_engine(7), make_engine(7, compile=True)
    expected = plain.generate(requests, sampling, bound(plain, strategy))
    made = fast.generate(requests, sampling, bound(fast, strategy))
    assert all(same(a, b) for a, b in zip(made, expected, strict=True))


@pytest.mark.gpu
def test_on_a_gpu_rollouts_are_the_same_but_for_rounding(tiny_source, bound, requests, sampling):
    """A draw that is nearly even can fall the other way, and the rollout goes its own way then."""
    made = []
    for fast in (False, True):
        engine = TorchEngine(tiny_source, 7, fast)
        engine.start(torch.device("cuda"))
        made.append(engine.generate(requests, sampling, bound(engine, MIXING)))
    assert sum(same(a, b) for a, b in zip(*made, strict=True)) >= len(requests) - 1


@pytest.mark.gpu
def test_on_a_gpu_a_schedule_moves_on_inside_compiled_steps(tiny_source, bound, requests, sampling):
    engine = TorchEngine(tiny_source, 7, True)
    engine.start(torch.device("cuda"))
    strategy = bound(engine, FADING)
    made = [engine.generate(requests, sampling, strategy.after(finished)) for finished in (0, 5, 10, 0)]
    mixed = [sum(len(rollout.mixture.positions) for rollout in one) for one in made]
    assert mixed[0] > mixed[1] > mixed[2] == 0
    assert all(same(a, b) for a, b in zip(made[0], made[3], strict=True))
