"""Planned bytes of weights, gradients and moments beside those of a real model after an optimiser step."""

from functools import partial

import pytest
import torch
from tiny_kinds import CONFIGS
from transformers import AutoModelForCausalLM

from ngrpo.modeling.lora import LoraSettings, add_adapter
from ngrpo.modeling.policy import ScoringModel
from ngrpo.planning.meta_model import meta_model
from ngrpo.planning.optimizer_memory import optimizer_memory
from ngrpo.planning.parameters import ModelSize, ParameterSize, gradient_bytes, moment_bytes, weight_bytes

pytest.importorskip("peft")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lora", [None, LoraSettings(rank=4)])
@pytest.mark.parametrize("kind", ["qwen2", "gemma", "llama"])
def test_planned_bytes_are_those_of_a_real_step(kind, lora, dtype):
    make = partial(torch.optim.AdamW, lr=1e-3)
    model = AutoModelForCausalLM.from_config(CONFIGS[kind], dtype=dtype)
    if lora is not None:
        add_adapter(model, lora)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.grad = torch.ones_like(parameter)
    optimizer = make(trained)
    optimizer.step()

    sizes = ModelSize.of(meta_model(CONFIGS[kind], dtype, lora)).all
    moments = optimizer_memory(make, torch.float32 if lora else dtype).moments
    state = [value for one in optimizer.state.values() for value in one.values() if value.dim() > 0]
    assert weight_bytes(sizes, 1) == sum(parameter.nbytes for parameter in model.parameters())
    assert gradient_bytes(sizes, 1) == sum(parameter.grad.nbytes for parameter in trained)
    assert moment_bytes(sizes, 1, moments) == sum(value.nbytes for value in state)


def test_tied_weights_count_once():
    tied = ScoringModel(AutoModelForCausalLM.from_config(CONFIGS["gemma"]))
    assert ModelSize.of(tied).numbers == sum(p.numel() for p in tied.parameters())
    assert ModelSize.of(meta_model(CONFIGS["gemma"], torch.float32)).numbers == ModelSize.of(tied).numbers


def test_layers_and_root_are_told_apart():
    size = ModelSize.of(meta_model(CONFIGS["qwen2"], torch.float32))
    assert len(size.layers) == 2
    assert len(size.all) == sum(map(len, size.layers)) + len(size.root)


@pytest.mark.parametrize(("rows", "ranks", "held"), [(10, 1, 40), (10, 2, 20), (10, 4, 12), (3, 8, 4)])
def test_shards_are_padded_to_equal_rows(rows, ranks, held):
    assert ParameterSize(rows=rows, numbers=rows * 4, itemsize=4, trained=True).shard(ranks) == held


@pytest.mark.parametrize(
    ("make", "large", "step"),
    [
        (partial(torch.optim.AdamW, lr=1.0), 8.0, 4.0),
        (partial(torch.optim.AdamW, lr=1.0, fused=True), 8.0, 0.0),
        (partial(torch.optim.AdamW, lr=1.0, foreach=False), 8.0, 0.0),
        (partial(torch.optim.SGD, lr=1.0), 0.0, 4.0),
        (partial(torch.optim.SGD, lr=1.0, momentum=0.9), 4.0, 4.0),
    ],
)
def test_an_optimisers_bytes_a_number(make, large, step):
    memory = optimizer_memory(make, torch.float32)
    assert (memory.large, memory.step) == (large, step)
