"""The trial passes engines of every strategy, and refuses each of six faults wherever a strategy shows it."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from broken_engines import (
    BROKEN,
    NoTemperature,
    PlainSampling,
    SharedMixtures,
    ShiftedMixtures,
    StaleWeights,
    SwappedWeights,
)
from made_rollouts import rollout
from tiny_kinds import VOCABULARY, tiny

from ngrpo.engine_check import probe
from ngrpo.engine_check.comparison import PLAIN_SCORES, Finding, worst
from ngrpo.engine_check.own_decisions import OwnModel
from ngrpo.engine_check.trial import EngineTrial, WeightTransfer
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gaussian_top_k import GaussianTopK
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.neighbor_annealed import AnnealedNeighborMixing
from ngrpo.exploration.neighbor_entropy import EntropyNeighborMixing
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.soft import SoftThinking
from ngrpo.exploration.token import TokenSampling
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.model_check.comparison import Numbers
from ngrpo.modeling.policy import ScoringModel
from ngrpo.rollout.torch_engine.engine import TorchEngine

MIXING: list[Exploration] = [
    NeighborMixing(), EntropyNeighborMixing(), AnnealedNeighborMixing(), SoftThinking(), GumbelSoftThinking(),
    GumbelSoftThinking(density="masked_mean"), GaussianSoftTokens(), GaussianSoftTokens(tau=0.0001), GaussianTopK(),
    HybridReasoning(),
]  # fmt: skip
STRATEGIES = [*MIXING, NeighborMixing(k=1), TokenSampling(), MinPSampling()]
KINDS = (
    NeighborMixing(),
    SoftThinking(),
    GumbelSoftThinking(),
    GaussianSoftTokens(),
    GaussianTopK(),
    HybridReasoning(),
)
LIMITS = probe.Limits(VOCABULARY, 128, 64)
Trial = Callable[..., list[Finding]]


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """Tries an engine of a random model; the weights must be those of before."""

    def findings(
        kind: type[TorchEngine], strategy: Exploration, dtype: str = "float32", transfer: bool = True
    ) -> list[Finding]:
        source = tiny("qwen2", tmp_path_factory.getbasetemp() / f"trial {dtype}", dtype)
        engine = kind(source)
        engine.start(torch.device("cpu"))
        policy = ScoringModel(source.load(), strategy.initial_parameters(source.config().hidden_size))
        before = [parameter.clone() for parameter in policy.parameters()]
        vocabulary = Vocabulary(VOCABULARY, frozenset(), {})
        bound = bind(strategy, engine.embedding(), vocabulary, dict(policy.learned.named_parameters()))
        own = OwnModel(policy, probe.mixing_often(bound), probe.TEMPERATURE, Numbers(engine.dtype))
        way = WeightTransfer(engine.sleep, lambda: engine.sync_weights(policy.lm.named_parameters()))
        with torch.no_grad():
            found = EngineTrial(engine, own, LIMITS, "tiny").findings(way if transfer else None)
        assert all(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))
        if kind is not StaleWeights:
            served = dict(engine.lm.named_parameters())
            assert all(torch.equal(one, served[name]) for name, one in policy.lm.named_parameters())
        return found

    return findings


def refused_in(findings: list[Finding]) -> tuple[str, str]:
    """Returns which rollouts and what of them are furthest beyond the limit."""
    found = worst(findings)
    assert found is not None
    return found.rollouts, found.what


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_every_strategy_passes(tried: Trial, strategy: Exploration):
    findings = tried(TorchEngine, strategy)
    assert not [str(one) for one in findings if one.excessive]
    assert all(one.deviation.telling for one in findings if one.what == PLAIN_SCORES)
    assert sum(one.what == PLAIN_SCORES for one in findings) >= 1
    assert len({one.rollouts for one in findings}) == 3
    assert all(one.deviation.mean == 0 for one in findings if one.what in ("tokens", "mixed flags"))
    mixed = sum(one.deviation.tokens for one in findings if one.what == "mixtures")
    explored = sum(one.deviation.tokens for one in findings if one.what == "log-probs of explored positions")
    assert mixed >= 0.35 * explored if strategy.mixes else mixed == 0


@pytest.mark.parametrize("strategy", [*KINDS, TokenSampling()], ids=repr)
def test_the_rounding_of_bfloat16_passes(tried: Trial, strategy: Exploration):
    assert not [str(one) for one in tried(TorchEngine, strategy, "bfloat16") if one.excessive]


FAULTS = [
    (fault, strategy)
    for fault in BROKEN
    for strategy in MIXING
    if strategy in KINDS and not (fault is SwappedWeights and strategy.width < 2)
]
"""A vector has no weights."""


@pytest.mark.parametrize(("fault", "strategy"), FAULTS, ids=lambda one: getattr(one, "__name__", repr(one)))
def test_each_fault_is_refused(tried: Trial, fault: type[TorchEngine], strategy: Exploration):
    assert worst(tried(fault, strategy, transfer=fault is StaleWeights)) is not None


@pytest.mark.parametrize("fault", [NoTemperature, StaleWeights])
@pytest.mark.parametrize("strategy", [TokenSampling(), MinPSampling(), NeighborMixing(k=1)], ids=repr)
def test_strategies_that_mix_nothing_have_faults_too(tried: Trial, fault: type[TorchEngine], strategy: Exploration):
    assert worst(tried(fault, strategy)) is not None


@pytest.mark.parametrize("fault", [one for one in BROKEN if one is not SharedMixtures])
@pytest.mark.parametrize("strategy", [NeighborMixing(), GumbelSoftThinking()], ids=repr)
def test_faults_are_larger_than_the_rounding_of_bfloat16(tried: Trial, fault: type[TorchEngine], strategy: Exploration):
    assert worst(tried(fault, strategy, "bfloat16", transfer=fault is StaleWeights)) is not None


def test_a_shared_block_of_mixtures_is_larger_than_the_rounding_of_bfloat16_where_mixtures_are_strong(tried: Trial):
    assert refused_in(tried(SharedMixtures, SoftThinking(), "bfloat16"))[0] == "rollouts after a cached prefix"


def test_what_is_refused_tells_the_fault(tried: Trial):
    strategy = NeighborMixing()
    assert refused_in(tried(PlainSampling, strategy))[1] == "mixed flags"
    assert refused_in(tried(StaleWeights, strategy))[0] == "rollouts after a transfer of weights"
    assert refused_in(tried(SharedMixtures, strategy))[0] == "rollouts after a cached prefix"
    nearer = {one.nearer for one in tried(ShiftedMixtures, strategy)}
    assert "mixtures one position late" in nearer
    nearer = {one.nearer for one in tried(SwappedWeights, strategy)}
    assert "mixtures whose first two weights are swapped" in nearer


def test_an_engine_that_gets_no_weights_is_not_transferred_any(tried: Trial):
    """Neither is one refused for keeping those that it has."""
    assert worst(tried(StaleWeights, NeighborMixing(), transfer=False)) is None
    assert worst(tried(ShiftedMixtures, NeighborMixing(), transfer=False)) is not None


def test_a_rate_that_a_class_refuses_is_left(tiny_vocabulary: Vocabulary):
    class Careful(NeighborMixing):
        def __post_init__(self) -> None:
            if self.rate > 0.2:
                raise ValueError("too much")

    embedding = torch.randn(VOCABULARY, 8)
    for strategy, rate in ((NeighborMixing(rate=0.1), 0.5), (NeighborMixing(rate=0.8), 0.8), (Careful(), 0.1)):
        bound = replace(bind(strategy, embedding, tiny_vocabulary), end_ids=(5,))
        often = probe.mixing_often(bound)
        assert (often.strategy.rate, often.end_ids) == (rate, ())
        assert often.strategy.k == strategy.k


@pytest.mark.parametrize(("prompt", "new"), [(1024, 8192), (300, 64), (128, 64), (20, 40), (1, 1), (500, 4)])
def test_the_probe_fits_into_the_engine_and_fills_blocks(prompt: int, new: int):
    limits = probe.Limits(100, prompt, new)
    asked = probe.requests(limits, explores=True)
    tokens = probe.sampling(limits).max_new_tokens
    made = [rollout(one.prompt_ids, [5] * tokens, {}, key=one.key) for one in asked]
    following = probe.followers(asked, made, limits, NeighborMixing())
    for one in (*asked, *following):
        assert len(one.prompt_ids) + tokens <= prompt + new
    assert max(len(one.prompt_ids) for one in asked) <= prompt
    long = len(asked[-1].prompt_ids)
    assert (len(following) > 2) == (prompt + new > 2)
    assert len({one.key for one in asked}) == len(asked)
    if prompt >= 128 and new >= 32:
        for block in (16, 32, 64, 128):  # which ends with what is computed of the response
            assert (long + tokens - 1) % block == 0
