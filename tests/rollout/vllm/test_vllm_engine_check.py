"""The comparison with PyTorch passes vLLM with every strategy, and refuses it when its worker is broken on purpose."""

from collections import deque
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor
from vllm_checks import start_engine

from ngrpo.engine_check import probe
from ngrpo.engine_check.comparison import Finding, worst
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
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.exploration.soft import SoftThinking
from ngrpo.exploration.token import TokenSampling
from ngrpo.model_check.comparison import Numbers
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.policy import ScoringModel
from ngrpo.rollout.records import stepper
from ngrpo.rollout.vllm.engine import VllmEngine

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm

SUMS: list[Exploration] = [
    NeighborMixing(), NeighborMixing(k=1), EntropyNeighborMixing(), AnnealedNeighborMixing(), SoftThinking(),
    GumbelSoftThinking(), TokenSampling(), MinPSampling(), MinPSampling(0.1, largest_support=40),
]  # fmt: skip
VECTORS: list[Exploration] = [GaussianSoftTokens(), GaussianTopK(), HybridReasoning()]
LIMITS = probe.Limits(570, 160, 96)
Tried = Callable[[VllmEngine, Exploration], list[Finding]]


@pytest.fixture(scope="module")
def sums(demo: ModelSource) -> VllmEngine:
    return start_engine(demo, SoftThinking())


@pytest.fixture(scope="module")
def vectors(demo: ModelSource) -> VllmEngine:
    return start_engine(demo, GaussianSoftTokens())


@pytest.fixture
def tried(demo: ModelSource, bound_to_demo: Callable[[Exploration], BoundExploration]) -> Tried:
    def findings(engine: VllmEngine, strategy: Exploration) -> list[Finding]:
        policy = ScoringModel(demo.load(), strategy.initial_parameters(demo.config().hidden_size))
        bound = probe.mixing_often(bound_to_demo(strategy))
        own = OwnModel(policy, bound, probe.TEMPERATURE, Numbers(engine.dtype))
        transfer = WeightTransfer(engine.sleep, lambda: engine.sync_weights(policy.lm.named_parameters()))
        with torch.no_grad():
            return EngineTrial(engine, own, LIMITS, "demo").findings(transfer)

    return findings


def passes(findings: list[Finding]) -> None:
    assert not [str(one) for one in findings if one.excessive]
    assert all(one.deviation.mean == 0 for one in findings if one.what in ("tokens", "mixed flags"))


@pytest.mark.parametrize("strategy", SUMS, ids=lambda one: type(one).__name__)
def test_sums_of_rows_pass(sums: VllmEngine, tried: Tried, strategy: Exploration):
    passes(tried(sums, strategy))


@pytest.mark.parametrize("strategy", VECTORS, ids=lambda one: type(one).__name__)
def test_vectors_pass(vectors: VllmEngine, tried: Tried, strategy: Exploration):
    passes(tried(vectors, strategy))


def shifted(engine: VllmEngine, patch: pytest.MonkeyPatch) -> None:
    lookup = stepper.lookup
    patch.setattr(stepper, "lookup", lambda *arguments: lookup(*arguments[:-1], arguments[-1] - 1))


def swapped(engine: VllmEngine, patch: pytest.MonkeyPatch) -> None:
    lookup = stepper.lookup

    def found(*arguments: Tensor) -> tuple:
        mixed, record = lookup(*arguments)
        order = [1, 0, *range(2, record.weights.shape[-1])]
        return mixed, record._replace(weights=record.weights[:, order])

    patch.setattr(stepper, "lookup", found)


def without_temperature(engine: VllmEngine, patch: pytest.MonkeyPatch) -> None:
    decide = stepper.decide
    patch.setattr(stepper, "decide", lambda strategy, logits, _, *rest: decide(strategy, logits, 1.0, *rest))


def stale(engine: VllmEngine, patch: pytest.MonkeyPatch) -> None:
    """The checks of the transfer itself left out too."""

    def kept(tensors: Iterable[tuple[str, Tensor]]) -> None:
        deque(tensors, maxlen=0)
        engine.llm.reset_prefix_cache()

    patch.setattr(engine, "sync_weights", kept)


def shared(engine: VllmEngine, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("ngrpo.rollout.vllm.prefix_cache.given_mixtures_of", lambda params: None)


def plain(engine: VllmEngine, patch: pytest.MonkeyPatch) -> None:
    decide = stepper.decide

    def drawn(strategy: Exploration, logits: Tensor, temperature: float, context, explore: Tensor | None, *more):
        nowhere = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
        return decide(strategy, logits, temperature, context, nowhere, *more)

    patch.setattr(stepper, "decide", drawn)


@pytest.mark.parametrize("fault", [shifted, swapped, without_temperature, stale, shared, plain])
def test_a_broken_worker_is_refused(
    sums: VllmEngine, tried: Tried, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., None]
):
    fault(sums, monkeypatch)
    found = worst(tried(sums, NeighborMixing()))
    assert found is not None
    print(f"{fault.__name__}: {found}")


@pytest.mark.parametrize("fault", [shifted, without_temperature, shared, plain])
def test_a_broken_worker_of_vectors_is_refused(
    vectors: VllmEngine, tried: Tried, monkeypatch: pytest.MonkeyPatch, fault: Callable[..., None]
):
    fault(vectors, monkeypatch)
    assert worst(tried(vectors, GaussianSoftTokens())) is not None
