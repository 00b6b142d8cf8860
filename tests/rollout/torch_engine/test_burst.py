"""Decode steps without a look of the host: as on a GPU, except that a captured step is the step itself."""

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from test_prefix_continuation import cut, lengths
from test_torch_engine import MIXING, same
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, Step
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gaussian_top_k import GaussianTopK
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.latent_gumbel import LatentGumbel
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.neighbor_annealed import AnnealedNeighborMixing
from ngrpo.exploration.neighbor_entropy import EntropyNeighborMixing
from ngrpo.exploration.neighbor_selective import SelectiveNeighborMixing
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.exploration.soft import SoftThinking
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.rollout.torch_engine import burst, engine
from ngrpo.rollout.torch_engine.batch_state import BatchState
from ngrpo.rollout.torch_engine.burst import StepShape, round_up
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.torch_engine.kv_cache import SlotCache
from ngrpo.types.rollouts import Rollout, Sampling


@dataclass(frozen=True)
class ReadsHidden(Exploration):
    """Mixes where the hidden state says so."""

    width = 2
    reads_hidden = True

    def step(self, logits, ctx):
        weights, ids = logits.softmax(-1).topk(2)
        return Step(ctx.sample(logits), ctx.hidden[:, 0] > 0, ids, weights)


STRATEGIES: list[Exploration] = [
    TokenSampling(),
    TokenSampling(top_k=20, top_p=0.9),
    MinPSampling(),
    MIXING,
    AnnealedNeighborMixing(),
    EntropyNeighborMixing(),
    SelectiveNeighborMixing(rate=0.9, max_cosine=0.999),
    SoftThinking(),
    GumbelSoftThinking(top_k=4, tau_g=0.7),
    LatentGumbel(top_k=4),
    GaussianTopK(k=5),
    GaussianSoftTokens(),
    HybridReasoning(r_min=0.9, r_max=0.95),
    ReadsHidden(),
]
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)


class Played:
    """Stands for a captured step: capturing does not run it, replaying does."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.replay = step


@pytest.fixture
def captured_on_cpu(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lets the engine capture on a CPU; one entry for each shape that was captured."""
    made: list[int] = []

    def capture(step: Callable[[], None], pool: object) -> Played:
        made.append(1)
        return Played(step)

    monkeypatch.setattr(burst, "captured", capture)
    monkeypatch.setattr(burst, "memory_pool", object)
    monkeypatch.setattr(engine, "captures", lambda device: True)
    return made


Make = Callable[..., TorchEngine]


@pytest.fixture
def bursting(make_engine: Make) -> Make:
    def make(burst: int, **settings: Any) -> TorchEngine:
        made = make_engine(**settings)
        made.burst = burst
        return made

    return make


def all_same(made: Sequence[Rollout], expected: Sequence[Rollout]) -> bool:
    return all(same(one, other) for one, other in zip(made, expected, strict=True))


@each_strategy
@pytest.mark.parametrize("captured", [True, False], ids=["captured", "uncaptured"])
def test_rollouts_are_those_of_single_steps(
    request, captured, make_engine, bursting, bound, requests, sampling, strategy: Exploration
):
    """In slots that are filled again, some rows plain, some from prefixes, some with tokens that are asked for.

    The model computes in float64, and not for long: a product of matrices is rounded otherwise for another number of
    rows, and vectors that are fed again make more of it with every step, means over the vocabulary about fivefold.
    """
    if captured:
        request.getfixturevalue("captured_on_cpu")
    plain, *others = make_engine(7), bursting(5, max_batch_size=7), bursting(64, max_batch_size=7)
    for one in (plain, *others):
        one.lm.double()
    most = 6 if strategy.dense else 14
    exploration, short = bound(plain, strategy), replace(sampling, max_new_tokens=most, stop_ids=(3, 7, 13, 21, 35, 44))
    whole = plain.generate(requests, short, exploration)
    assert len({rollout.length for rollout in whole}) > 1
    kept = [0] * len(whole) if strategy.stateful else lengths(whole)
    given = [cut(*parts) for parts in zip(requests, whole, kept, strict=True)]
    asked = [
        replace(
            one,
            explore=number % 5 > 0,
            key=one.key + 1,
            forced_token=30 if number % 3 == 1 else None,
            likeliest=number % 4 == 1,
        )
        for number, one in enumerate(given)
    ]
    for some, recorded in ((requests, False), (asked, True)):
        settings = replace(short, distributions=recorded)
        expected = plain.generate(some, settings, exploration)
        for one in others:
            assert all_same(one.generate(some, settings, exploration), expected)


@each_strategy
def test_steps_of_the_same_shape_are_the_same_bit_for_bit(
    captured_on_cpu, monkeypatch, bursting, bound, requests, strategy: Exploration
):
    """Nothing ends early, and every step is one of the whole batch."""
    whole = StepShape(6, 35)
    monkeypatch.setattr(TorchEngine, "_largest_captured", lambda *_: whole)
    monkeypatch.setattr(StepShape, "rounded", lambda *_: whole)
    open_ended = Sampling(temperature=0.8, max_new_tokens=24, stop_ids=())
    made = []
    for steps in (1, 8):
        one = bursting(steps, max_batch_size=6)
        made.append(one.generate(requests, open_ended, bound(one, strategy)))
        assert one.wasted == 0
    assert captured_on_cpu == [1]
    for one, other in zip(*made, strict=True):
        assert one.response_ids.equal(other.response_ids)
        assert one.log_probs.equal(other.log_probs)
        assert one.mixture.positions.equal(other.mixture.positions)
        for ours, theirs in zip(one.mixture.record, other.mixture.record, strict=True):
            assert theirs is None or ours.equal(theirs)


class FromHost(TorchDispatchMode):
    """Notes operators that take or give tensors in host memory while all others are elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        tensors = [one for one in tree_leaves((args, kwargs, made)) if isinstance(one, torch.Tensor)]
        if any(one.device.type == "cpu" for one in tensors):
            self.seen.add(str(func))
        return made


@each_strategy
def test_a_step_takes_nothing_from_the_host_and_gives_it_nothing(
    monkeypatch, make_engine, bound, tiny_source, strategy: Exploration
):
    """On the meta device there are no values, so that a look at one fails."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    away = torch.device("meta")
    here, there = make_engine(), TorchEngine(tiny_source)
    exploration = moved(bound(here, strategy), away)
    there.start(away)
    state = BatchState(
        4,
        strategy,
        Sampling(0.8, 8, stop_ids=(3,), distributions=True),
        torch.zeros(1, dtype=torch.int64, device=away),
        there.embedding(),
        False,
        steered=True,
    )
    cache = SlotCache(there.lm.config, 5, 16, like=there.embedding())
    with FromHost() as host:
        there._decode(state, cache, exploration, StepShape(4, 12))
    assert host.seen == set()


def moved(exploration: BoundExploration, device: torch.device) -> BoundExploration:
    def there(tensors: Any) -> dict[str, torch.Tensor]:
        return {name: tensor.to(device) for name, tensor in tensors.items()}

    return replace(
        exploration,
        tables=there(exploration.tables),
        parameters=there(exploration.parameters),
        progress=exploration.progress.to(device),
    )


def test_what_the_host_gives_is_seen():
    with FromHost() as host:
        torch.zeros(2, device="meta") + torch.tensor(1.0)
    assert len(host.seen) > 0


def test_few_shapes_are_captured(captured_on_cpu, bursting, bound, requests, sampling):
    made = bursting(3, max_batch_size=7)
    made.generate(requests, sampling, bound(made, MIXING))
    assert 0 < len(captured_on_cpu) <= 12


def test_single_steps_are_not_captured(captured_on_cpu, bursting, bound, requests, sampling):
    made = bursting(1)
    made.generate(requests, sampling, bound(made, MIXING))
    assert captured_on_cpu == []


def test_what_rows_compute_after_their_end_is_counted(bursting, bound, requests, sampling):
    """In a burst of all steps: each row makes as many as the longest."""
    made = bursting(64)
    rollouts = made.generate(requests, sampling, bound(made, MIXING))
    longest = max(rollout.length for rollout in rollouts)
    assert made.wasted == sum(longest - rollout.length for rollout in rollouts) > 0
    before = made.wasted
    made.burst = 1
    made.generate(requests, sampling, bound(made, MIXING))
    assert made.wasted == 0
    assert made.wasted_tokens == before


@pytest.fixture
def failing_capture(captured_on_cpu, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    tried: list[int] = []

    def capture(step: Callable[[], None], pool: object) -> Played:
        tried.append(1)
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(burst, "captured", capture)
    return tried


def test_what_cannot_be_captured_runs_uncaptured_and_says_so_once(
    failing_capture, caplog, make_engine, bursting, bound, requests, sampling
):
    plain, made = make_engine(7), bursting(4, max_batch_size=7)
    expected = plain.generate(requests, sampling, bound(plain, MIXING))
    with caplog.at_level(logging.WARNING, logger=engine.__name__):
        for _ in range(2):
            assert all_same(made.generate(requests, sampling, bound(made, MIXING)), expected)
    (record,) = caplog.records
    assert "no CUDA graph can be made of them (RuntimeError: operation not permitted" in record.getMessage()
    assert len(failing_capture) == 1


def test_a_burst_of_nothing_is_refused(tiny_source):
    with pytest.raises(SettingError, match=r"rollout\.engine\.burst=0 makes no step"):
        TorchEngine(tiny_source, burst=0)


def test_sizes_are_rounded_up_to_few():
    rounded = {round_up(size) for size in range(1, 257)}
    assert sorted(rounded) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]
    assert all(size <= round_up(size) <= 1.5 * size for size in range(1, 1000))
    assert StepShape(5, 100).rounded(StepShape(7, 110)) == (6, 110)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@each_strategy
def test_captured_steps_make_the_rollouts_of_uncaptured_ones(tiny_source, bound, requests, sampling, strategy, dtype):
    """All rows at once for as long as they all run, so that steps are of the same rows."""
    open_ended, made = replace(sampling, stop_ids=()), []
    for steps in (1, 8):
        one = TorchEngine(replace(tiny_source, dtype=dtype), burst=steps)
        one.start(torch.device("cuda"))
        made.append(one.generate(requests, open_ended, bound(one, strategy)))
        assert one._uncaptured == set()
    expected, rollouts = made
    assert sum(one.response_ids.equal(other.response_ids) for one, other in zip(rollouts, expected, strict=True)) >= 22
    worst = max(
        float((one.log_probs - other.log_probs).abs().max())
        for one, other in zip(rollouts, expected, strict=True)
        if one.response_ids.equal(other.response_ids)
    )
    assert worst < (1e-3 if dtype == "float32" else 0.2)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_captured_rollouts_are_replayed_by_the_trainer(tiny_source, bound, requests, sampling, dtype):
    """In slots that are filled again, with ends inside of bursts."""
    engine = TorchEngine(replace(tiny_source, dtype=dtype), 7, burst=8)
    engine.start(torch.device("cuda"))
    rollouts = engine.generate(requests, sampling, bound(engine, MIXING))
    assert engine.wasted > 0
    model = ScoringModel(tiny_source.load().cuda())
    scores = model(pack(rollouts).to(torch.device("cuda")), sampling.temperature, MIXING)
    error = scores.log_prob.cpu() - torch.cat([rollout.log_probs for rollout in rollouts])
    assert float(error.abs().max() if dtype == "float32" else error.abs().mean()) < (
        1e-3 if dtype == "float32" else 0.1
    )


@pytest.mark.gpu
def test_a_step_that_waits_for_the_host_is_made_uncaptured(tiny_source, bound, requests, sampling, caplog):
    """The device is as usable afterwards as before."""
    plain, made = TorchEngine(tiny_source, 7, burst=1), TorchEngine(tiny_source, 7, burst=8)
    for one in (plain, made):
        one.start(torch.device("cuda"))
    forward = made._forward
    made._forward = lambda *parts: waits(forward(*parts))
    exploration = bound(plain, MIXING)
    expected = plain.generate(requests, sampling, exploration)
    for _ in range(2):
        rollouts = made.generate(requests, sampling, exploration)
        assert sum(same(*pair) for pair in zip(rollouts, expected, strict=True)) >= len(requests) - 1
    said = [record.getMessage() for record in caplog.records if record.name == engine.__name__]
    assert len(said) == 1
    assert "no CUDA graph can be made" in said[0]
    made._forward = forward
    again = made.generate(requests, sampling, bound(made, TokenSampling()))
    assert len(again) == len(requests)
    torch.cuda.synchronize()


def waits(hidden: torch.Tensor) -> torch.Tensor:
    assert float(hidden.sum()) != float("inf")
    return hidden
