"""The log-probs of an exact engine and an exact trainer: equal bit for bit, however the sequences are batched."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tiny_kinds import tiny
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.soft import SoftThinking
from ngrpo.exploration.token import TokenSampling
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.exact.model import ACTIVATIONS, make_exact
from ngrpo.modeling.layers import prepare_layers
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Request, Rollout, Sampling

STRATEGIES = [
    TokenSampling(),
    MinPSampling(0.1, largest_support=40),
    NeighborMixing(rate=0.4, end_token=None),
    SoftThinking(end_token=None),
    HybridReasoning(end_token=None),
]
SAMPLING = Sampling(temperature=0.7, max_new_tokens=24, stop_ids=(3,))
KINDS = ["llama", "mistral", "qwen2", "qwen3"]


def rollouts_of(
    source: ModelSource,
    strategy: Exploration,
    requests: Sequence[Request],
    at_once: int,
    exact: bool = True,
    burst: int = 1,
) -> list[Rollout]:
    engine = TorchEngine(source, at_once, exact=exact, burst=burst)
    engine.start(torch.device("cpu"))
    table = engine.embedding()
    vocabulary = Vocabulary(len(table), frozenset({0, 1, 2, 3}), {})
    return engine.generate(requests, SAMPLING, bind(strategy, table, vocabulary))


def trainer(source: ModelSource, strategy: Exploration, exact: bool = True) -> ScoringModel:
    lm = source.load()
    if exact:
        make_exact(lm)
    return ScoringModel(lm, strategy.initial_parameters(lm.config.hidden_size))


def differences(model: ScoringModel, strategy: Exploration, rollouts: Sequence[Rollout], together: int) -> Tensor:
    """Scores so many rollouts in a pass; returns trainer minus engine of all tokens."""
    found = []
    for start in range(0, len(rollouts), together):
        some = rollouts[start : start + together]
        scored = model(pack(some), SAMPLING.temperature, strategy).log_prob
        found.append(scored.detach() - torch.cat([rollout.log_probs for rollout in some]))
    return torch.cat(found)


@pytest.fixture
def source(tmp_path: Path) -> ModelSource:
    return tiny("qwen2", tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: type(one).__name__)
def test_trainer_and_engine_agree_bit_for_bit(
    strategy: Exploration, kind: str, dtype: str, tmp_path: Path, requests: list[Request]
) -> None:
    source = tiny(kind, tmp_path, dtype)
    rollouts = rollouts_of(source, strategy, requests, at_once=7)
    assert any(len(rollout.mixture.positions) for rollout in rollouts) == strategy.mixes
    model = trainer(source, strategy)
    for together in (1, 5, len(rollouts)):
        assert differences(model, strategy, rollouts, together).abs().max() == 0.0


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_sizes_that_fill_no_vectors_change_nothing(activation: str, tmp_path: Path, requests: list[Request]) -> None:
    """PyTorch computes what lies behind the last whole vector of a tensor by other code."""
    sizes = {"vocab_size": 67, "hidden_size": 56, "intermediate_size": 101, "num_hidden_layers": 2, "head_dim": 18}
    config = LlamaConfig(
        **sizes, num_attention_heads=4, num_key_value_heads=2, hidden_act=activation, initializer_range=0.3
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    source, strategy = ModelSource(str(tmp_path)), HybridReasoning(end_token=None)
    rollouts = rollouts_of(source, strategy, requests, at_once=7)
    assert differences(trainer(source, strategy), strategy, rollouts, len(rollouts)).abs().max() == 0.0


def test_without_it_they_do_not(source: ModelSource, requests: list[Request]) -> None:
    strategy = NeighborMixing(rate=0.4, end_token=None)
    rollouts = rollouts_of(source, strategy, requests, at_once=7, exact=False)
    found = differences(trainer(source, strategy, exact=False), strategy, rollouts, len(rollouts)).abs().max()
    assert 0.0 < found < 1e-3


def test_exact_log_probs_are_those_of_the_model(source: ModelSource, requests: list[Request]) -> None:
    strategy = NeighborMixing(rate=0.4, end_token=None)
    batch = pack(rollouts_of(source, strategy, requests, at_once=7))
    exact, ordinary = (trainer(source, strategy, exact)(batch, 0.7, strategy) for exact in (True, False))
    torch.testing.assert_close(exact.log_prob, ordinary.log_prob, atol=1e-4, rtol=0)
    torch.testing.assert_close(exact.entropy, ordinary.entropy, atol=1e-4, rtol=0)


@pytest.mark.parametrize("checkpointing", ["off", "full"])
def test_its_gradient_is_that_of_the_ordinary_trainer(
    checkpointing: str, source: ModelSource, requests: list[Request]
) -> None:
    strategy = HybridReasoning(end_token=None)
    rollouts = rollouts_of(source, strategy, requests[:5], at_once=5)
    gradients = []
    for exact in (True, False):
        model = trainer(source, strategy, exact)
        prepare_layers(model.lm.base_model.layers, checkpointing, compiled=False)
        model(pack(rollouts), 0.7, strategy).log_prob.sum().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        assert gradient is not None
        torch.testing.assert_close(gradient, gradients[1][name], atol=2e-3, rtol=2e-3, msg=lambda m: f"{name}: {m}")  # noqa: B023


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: type(one).__name__)
def test_rollouts_do_not_depend_on_the_batch(
    strategy: Exploration, source: ModelSource, requests: list[Request]
) -> None:
    alone = rollouts_of(source, strategy, requests[:6], at_once=1)
    for burst in (1, 5):
        together = rollouts_of(source, strategy, requests[:6], at_once=6, burst=burst)
        for one, other in zip(alone, together, strict=True):
            assert torch.equal(one.log_probs, other.log_probs)
            assert torch.equal(one.response_ids, other.response_ids)
            for mine, others in zip(one.mixture.record, other.mixture.record, strict=True):
                assert mine is others is None or torch.equal(mine, others)


def test_a_compiled_exact_engine_is_refused(source: ModelSource) -> None:
    with pytest.raises(SettingError, match="rollout.engine.compile=true"):
        TorchEngine(source, compile=True, exact=True)
