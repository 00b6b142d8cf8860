"""Activations that a plan counts on the meta device, beside those that a real pass keeps, and beside measurements."""

import json
from functools import partial

import pytest
import torch
from places import ROOT
from tiny_kinds import CONFIGS
from torch.autograd.graph import saved_tensors_hooks
from transformers import AutoModelForCausalLM, Qwen2Config

from ngrpo.modeling.attention import IMPLEMENTATION, PackedAttention
from ngrpo.modeling.layers import CHECKPOINTING, prepare_layers
from ngrpo.planning.meta_model import meta_model
from ngrpo.planning.parameters import ModelSize, gradient_bytes
from ngrpo.planning.pass_memory import PassSettings, training_pass

GIB = 2**30
TOKENS = 512
BENCHMARKS = ROOT / "docs" / "benchmarks"
MEASURED_SHAPE = Qwen2Config(
    max_position_embeddings=131072, tie_word_embeddings=False, vocab_size=151936, hidden_size=1536,
    intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2,
)  # fmt: skip
plain = partial(
    PassSettings, dtype=torch.float32, mixed_in=None, checkpointing="off", compile=False, lora=None, tokens=TOKENS,
    scored=TOKENS, head_rows=128, accumulating=True,
)  # fmt: skip


def kept_by_a_real_pass(config, checkpointing):
    """Counts what the layers of a real model keep on the CPU; recomputation included, which no hook sees."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=IMPLEMENTATION)
    prepare_layers(model.base_model.layers, checkpointing, compiled=False)
    storages = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    inputs = torch.randn(1, TOKENS, config.hidden_size, requires_grad=True)
    plan = PackedAttention([TOKENS], torch.device("cpu"))
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        made = model.base_model(
            inputs_embeds=inputs, position_ids=torch.arange(TOKENS)[None], use_cache=False, plan=plan
        ).last_hidden_state
    for parameter in model.parameters():
        storages.pop(parameter.untyped_storage().data_ptr(), None)
    del made
    return sum(storages.values())


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama", "gemma2", "olmo2"])
@pytest.mark.parametrize("checkpointing", ["off", "full"])
def test_what_layers_keep_is_what_a_real_pass_keeps(kind, checkpointing):
    config = CONFIGS[kind]
    planned = training_pass(plain(config=config, checkpointing=checkpointing)).kept_per_layer
    deeper = type(config)(**{**config.to_dict(), "num_hidden_layers": 4, "layer_types": None})
    real = (kept_by_a_real_pass(deeper, checkpointing) - kept_by_a_real_pass(config, checkpointing)) / 2
    assert planned == pytest.approx(real, rel=0.15)


@pytest.mark.parametrize("kind", sorted(CONFIGS))
def test_checkpointing_keeps_less_of_every_model(kind):
    off, selective, full = (training_pass(plain(config=CONFIGS[kind], checkpointing=c)) for c in CHECKPOINTING)
    assert off.kept_per_layer > selective.kept_per_layer > full.kept_per_layer > 0
    assert off.peak > full.peak


def test_a_compiled_layer_keeps_less():
    compiled = training_pass(plain(config=CONFIGS["qwen2"], compile=True))
    assert 0 < compiled.kept_per_layer < training_pass(plain(config=CONFIGS["qwen2"])).kept_per_layer


def test_gradients_that_are_there_before_a_pass_are_part_of_its_memory():
    first, later = (training_pass(plain(config=CONFIGS["qwen2"], accumulating=there)) for there in (False, True))
    gradients = gradient_bytes(ModelSize.of(meta_model(CONFIGS["qwen2"], torch.float32)).all, 1)
    assert first.peak < later.peak
    assert later.head - first.head == pytest.approx(gradients, rel=0.5)


def measured(name):
    stored = json.loads((BENCHMARKS / name).read_text())
    return list(zip(stored["runs"], stored["results"], strict=True))


@pytest.mark.parametrize(("run", "result"), measured("memory_h200.json"))
def test_one_microbatch_takes_what_was_measured_on_a_gpu(run, result):
    memory = training_pass(
        PassSettings(
            config=MEASURED_SHAPE, dtype=torch.float32, mixed_in=torch.bfloat16, checkpointing=run["checkpointing"],
            compile=run["compile"], lora=None, tokens=run["microbatch_tokens"], scored=run["microbatch_tokens"],
            head_rows=run["head_rows"], accumulating=False,
        )
    )  # fmt: skip
    gradients = gradient_bytes(ModelSize.of(meta_model(MEASURED_SHAPE, torch.float32)).all, 1)
    assert (memory.peak - gradients) / GIB == pytest.approx(result["activation_gib"], rel=0.05)
