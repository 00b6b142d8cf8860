"""Computation in 16 bits over float32 parameters."""

from contextlib import nullcontext

import pytest
import torch
from made_rollouts import rollout
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM

from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.layers import prepare_layers
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.precision import computing_in, round_parameters

BATCHES = [
    pack([rollout(range(5, 9), [7] * 5, {4: {20: 0.75, 21: 0.25}}), rollout([12, 9], [13, 4, 8])]),
    pack([rollout([30], [13, 4, 8, 11])]),
]


def gradients(model: ScoringModel, batches: list, half: torch.dtype | None) -> dict[str, Tensor]:
    with nullcontext() if half is None else computing_in(model, half):
        for batch in batches:
            model(batch, 1.0, NeighborMixing()).log_prob.sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def test_parameters_are_back_afterwards_with_their_own_gradients(tiny_source: ModelSource):
    model = ScoringModel(tiny_source.load())
    before = dict(model.named_parameters())
    with computing_in(model, torch.bfloat16):
        assert {p.dtype for p in model.lm.state_dict().values()} == {torch.bfloat16}
    made = gradients(model, BATCHES[:1], half=torch.bfloat16)
    assert dict(model.named_parameters()) == before
    assert {g.dtype for g in made.values()} == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("checkpointing", ["off", "selective", "full"])
def test_it_computes_what_a_rounded_model_computes(tiny_source: ModelSource, checkpointing: str, dtype: torch.dtype):
    """Per microbatch: the sum over microbatches is in float32, as the sum of the rounded gradients is not."""
    model, rounded = ScoringModel(tiny_source.load()).train(), ScoringModel(tiny_source.load())
    prepare_layers(model.lm.base_model.layers, checkpointing, compiled=False)
    round_parameters(rounded, dtype)
    expected = []
    for batch in BATCHES:
        rounded.zero_grad()
        expected.append({name: g.float() for name, g in gradients(rounded, [batch], half=None).items()})
    made = gradients(model, BATCHES, half=dtype)
    for name, gradient in made.items():
        assert torch.equal(gradient, expected[0][name] + expected[1][name]), name


def test_a_bfloat16_model_is_not_copied(tiny_source: ModelSource):
    model = ScoringModel(tiny_source.load())
    round_parameters(model, torch.bfloat16)
    before = [parameter.data_ptr() for parameter in model.lm.parameters()]
    with computing_in(model, torch.bfloat16):
        assert [weight.data_ptr() for weight in model.lm.state_dict(keep_vars=True).values()] == before


def test_tied_weights_stay_tied():
    config = Qwen2Config(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True, attn_implementation="ngrpo",
    )  # fmt: skip
    model = ScoringModel(Qwen2ForCausalLM(config))
    with computing_in(model, torch.bfloat16):
        assert model.lm.lm_head.weight is model.lm.get_input_embeddings().weight
    gradients(model, BATCHES, half=torch.bfloat16)
    assert model.lm.lm_head.weight is model.lm.get_input_embeddings().weight


def test_rotary_frequencies_are_not_rounded(tiny_source: ModelSource):
    model = ScoringModel(tiny_source.load())
    round_parameters(model, torch.bfloat16)
    assert {p.dtype for p in model.lm.parameters()} == {torch.bfloat16}
    assert {b.dtype for b in model.lm.buffers() if b.is_floating_point()} == {torch.float32}
