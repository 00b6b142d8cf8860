"""Strategies that read the embedding table, on models that scale it."""

import shutil
from pathlib import Path

import pytest
import torch
from made_models import EVERY_SUPPORTED, tiny_config, tiny_model
from transformers import AutoModelForCausalLM, Gemma3TextConfig, GemmaConfig, Qwen2Config

import ngrpo
from ngrpo.errors import SettingError
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gaussian_top_k import GaussianTopK
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.embedding_scale import _feeds_rows, check_embedding_scale
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.serving.served_model import Choice, ServedModel

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


@pytest.fixture
def scaled_folder(tmp_path: Path, tiny_model_path: Path) -> str:
    """A Gemma with the tiny tokenizer."""
    shutil.copytree(tiny_model_path, tmp_path / "gemma")
    AutoModelForCausalLM.from_config(GemmaConfig(**SIZES | {"vocab_size": 64})).save_pretrained(tmp_path / "gemma")
    return str(tmp_path / "gemma")


def test_they_are_refused_wherever_rollouts_are_made(scaled_folder: str, bound, requests, sampling, monkeypatch):
    """Without a training too: by what samples and evaluates before weights are read, by a server for each choice."""
    source, strategy = ModelSource(path=scaled_folder), GaussianSoftTokens(end_token=None)
    refusal = f"model.path={scaled_folder} scales them before it uses them"
    engine = TorchEngine(source)
    engine.start(torch.device("cpu"))
    with pytest.raises(SettingError, match=refusal):
        engine.generate(requests, sampling, bound(engine, strategy))
    served = ServedModel.__new__(ServedModel)
    served.engine, served.source = engine, source
    with pytest.raises(SettingError, match=refusal):
        served._newly_bound(Choice("gaussian", strategy))
    monkeypatch.setattr(ModelSource, "load", lambda _: pytest.fail("weights were read"))
    with pytest.raises(SettingError, match=refusal):
        ngrpo.sample(scaled_folder, "a b c", exploration="gaussian")


@pytest.mark.parametrize("kind", EVERY_SUPPORTED)
def test_the_class_of_an_embedding_tells_what_its_values_do(kind: str):
    lm = tiny_model(tiny_config(kind))
    embedding = lm.get_input_embeddings()
    values = _feeds_rows(embedding)
    assert _feeds_rows(embedding.to("meta")) == values
