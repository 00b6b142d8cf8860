"""Strategies that read the embedding table, on models that scale it."""

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, Qwen2Config

from ngrpo.errors import SettingError
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gaussian_top_k import GaussianTopK
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.embedding_scale import check_embedding_scale

SIZES = {
    "vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "eos_token_id": 1, "pad_token_id": 0, "bos_token_id": 1,
}  # fmt: skip


@pytest.mark.parametrize("strategy", [GaussianSoftTokens(), GaussianTopK(), HybridReasoning()])
def test_vectors_of_a_table_that_is_scaled_are_refused(strategy):
    scaled = AutoModelForCausalLM.from_config(Gemma3TextConfig(**SIZES))
    assert not torch.equal(scaled.get_input_embeddings()(torch.tensor([3])), scaled.get_input_embeddings().weight[3:4])
    with pytest.raises(SettingError, match=rf"exploration={type(strategy).__name__} .*model.path=x scales them before"):
        check_embedding_scale(scaled, strategy, "x")
    check_embedding_scale(AutoModelForCausalLM.from_config(Qwen2Config(**SIZES)), strategy, "x")
    check_embedding_scale(scaled, NeighborMixing(), "x")
