"""The transfer of weights to vLLM."""

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from vllm_checks import (
    MIXING,
    UNSTOPPED,
    assert_same_rollouts,
    assert_wrong_transfers_are_caught,
    random_requests,
    start_engine,
)

from ngrpo.errors import RunError
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.rollout.vllm.engine import VllmEngine

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm

REQUESTS = random_requests(6, 5, 60, samples=2)


def changed(engine: TorchEngine) -> dict[str, torch.Tensor]:
    """Weights far from the engine's: each tensor scaled and disturbed in its own way."""
    generator = torch.Generator().manual_seed(2)
    return {
        name: p * 1.1 + 0.1 * p.std().nan_to_num(0.1) * torch.randn(p.shape, generator=generator)
        for name, p in engine.lm.named_parameters()
    }


@pytest.fixture
def demo_engine(engine, oracle):
    """The shared engine, with the demo's weights again afterwards."""
    yield engine
    engine.sync_weights(oracle.lm.named_parameters())


@pytest.fixture(scope="module")
def tied(tmp_path_factory) -> ModelSource:
    """A random Qwen2 whose head is its embedding, with a vocabulary that vLLM pads."""
    path = tmp_path_factory.mktemp("tied")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=100,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    Qwen2ForCausalLM(config).save_pretrained(path)
    return ModelSource(path=str(path))


@pytest.mark.vllm_smoke
def test_new_weights_are_served(demo_engine, demo, mixing):
    fresh = TorchEngine(demo)
    fresh.start(torch.device("cpu"))
    before = demo_engine.generate(REQUESTS, UNSTOPPED, mixing)
    weights = changed(fresh)
    fresh.sync_weights(weights.items())
    demo_engine.sync_weights(weights.items())
    rollouts = demo_engine.generate(REQUESTS, UNSTOPPED, mixing)
    assert_same_rollouts(rollouts, fresh.generate(REQUESTS, UNSTOPPED, mixing))
    assert all(a.response_ids.tolist() != b.response_ids.tolist() for a, b in zip(before, rollouts, strict=True))
    assert torch.equal(demo_engine.embedding(), fresh.embedding())


def test_a_tied_head_follows_its_embedding(tied):
    oracle = TorchEngine(tied)
    oracle.start(torch.device("cpu"))
    engine = start_engine(tied)
    requests = [r for r in random_requests(4, 5, 20) for _ in range(1)]
    requests = [type(r)(tuple(token % 100 for token in r.prompt_ids), r.key) for r in requests]
    neighbors = torch.arange(100)[:, None] + torch.arange(3)
    bound = BoundExploration(MIXING, {"neighbors": (neighbors % 100).int()}, ())
    assert_same_rollouts(engine.generate(requests, UNSTOPPED, bound), oracle.generate(requests, UNSTOPPED, bound))
    weights = changed(oracle)
    assert "lm_head.weight" not in weights
    oracle.sync_weights(weights.items())
    engine.sync_weights(weights.items())
    assert torch.equal(engine.embedding(), oracle.embedding())
    assert_same_rollouts(engine.generate(requests, UNSTOPPED, bound), oracle.generate(requests, UNSTOPPED, bound))


NAMES = ["model.layers.1.self_attn.k_proj.weight", "model.norm.weight", "lm_head.weight"]


def test_a_wrong_transfer_is_caught_and_leaves_no_weights_to_use(demo_engine, oracle, mixing):
    before = demo_engine.generate(REQUESTS, UNSTOPPED, mixing)
    assert_wrong_transfers_are_caught(demo_engine, changed(oracle), NAMES)
    demo_engine.sync_weights(oracle.lm.named_parameters())
    assert_same_rollouts(demo_engine.generate(REQUESTS, UNSTOPPED, mixing), before)


@pytest.mark.parametrize("name", NAMES)
def test_a_tensor_that_vllm_does_not_load_is_caught(demo_engine, oracle, monkeypatch, name):
    served = demo_engine._call("_ngrpo_checked_model")[0].model
    load = served.load_weights
    with monkeypatch.context() as patch:
        patch.setattr(served, "load_weights", lambda bucket: load((n, w) for n, w in bucket if n != name))
        with pytest.raises(RuntimeError, match="vLLM serves parameters that no weights came for: "):
            demo_engine.sync_weights(changed(oracle).items())


def test_what_vllm_makes_of_its_own_weights_is_caught(demo_engine, oracle, monkeypatch):
    demo_engine.sync_weights(oracle.lm.named_parameters())
    served = demo_engine._call("_ngrpo_checked_model")[0].model
    load = served.load_weights
    with monkeypatch.context() as patch:
        patch.setattr(served, "load_weights", lambda bucket: load((n, -w if n == NAMES[0] else w) for n, w in bucket))
        with pytest.raises(RunError, match=r"change model\.layers\.1\.self_attn\.qkv_proj\.weight\); set"):
            demo_engine.sync_loaded(oracle.lm.named_parameters())


def test_the_weight_version_follows_the_weights(demo_engine, oracle):
    demo_engine.sync_weights(oracle.lm.named_parameters())
    version = demo_engine.weight_version
    demo_engine.sync_weights(changed(oracle).items())
    assert demo_engine.weight_version != version
    demo_engine.sync_weights(oracle.lm.named_parameters())
    assert demo_engine.weight_version == version


def test_loaded_weights_stay_bit_equal(demo_engine, oracle):
    demo_engine.sync_weights(oracle.lm.named_parameters())
    demo_engine.sync_loaded(oracle.lm.named_parameters())
    with pytest.raises(
        RunError, match=r"model\.path=demo as they are trained \(weights that are sent as they were loaded"
    ):
        demo_engine.sync_loaded(changed(oracle).items())


@pytest.mark.parametrize("first", ["sync_weights", "sync_loaded"])
def test_an_engine_may_sleep_before_its_first_transfer(demo_engine, oracle, mixing, monkeypatch, first):
    before = demo_engine.generate(REQUESTS, UNSTOPPED, mixing)
    monkeypatch.setattr(demo_engine, "_sendable", False)
    fall_asleep(demo_engine, monkeypatch)
    demo_engine.wake()
    getattr(demo_engine, first)(oracle.lm.named_parameters())
    assert_same_rollouts(demo_engine.generate(REQUESTS, UNSTOPPED, mixing), before)


def test_before_a_first_sleep_it_is_checked_that_weights_can_be_sent(demo_engine, oracle, monkeypatch):
    monkeypatch.setattr(demo_engine, "_sendable", False)
    served = demo_engine._call("_ngrpo_checked_model")[0].model
    load = served.load_weights
    with monkeypatch.context() as patch:
        patch.setattr(served, "load_weights", lambda bucket: load((n, -w if n == NAMES[0] else w) for n, w in bucket))
        with pytest.raises(RunError, match=r"change model\.layers\.1\.self_attn\.qkv_proj\.weight\); set"):
            fall_asleep(demo_engine, monkeypatch)


def fall_asleep(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets an engine sleep as on a GPU, where whatever lay in the memory of its weights is gone."""
    table = engine.embedding()  # in this process, by reference

    def spoil(level: int) -> None:
        assert level == 2
        table.fill_(float("nan"))

    monkeypatch.setattr(engine.llm, "sleep", spoil)
    monkeypatch.setattr(engine.llm, "wake_up", lambda tags: None)
    monkeypatch.setitem(engine._arguments, "enable_sleep_mode", True)
    engine.sleep()
