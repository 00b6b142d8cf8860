"""What is exported is what stock transformers loads."""

import os
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from ngrpo.checkpoint.export import Weights, export
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.sharding import named_weights

TEXT = "a b boxed { 4 } </think>"


@pytest.fixture
def tied_source(tmp_path: Path, tiny_source: ModelSource) -> ModelSource:
    config = Qwen2Config.from_pretrained(tiny_source.path, tie_word_embeddings=True)
    Qwen2ForCausalLM(config).save_pretrained(tmp_path / "tied")
    tiny_source.tokenizer().save_pretrained(tmp_path / "tied")
    return ModelSource(path=str(tmp_path / "tied"))


@pytest.mark.parametrize("kind", ["tiny_source", "tied_source"])
def test_round_trip(kind: str, tmp_path: Path, request: pytest.FixtureRequest):
    source: ModelSource = request.getfixturevalue(kind)
    policy = ScoringModel(source.load())
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(torch.randn_like(parameter))
    weights = dict(named_weights(policy, None))
    assert ("lm_head.weight" in weights) == (kind == "tiny_source")
    export(source, source.tokenizer(), Weights(weights, {}), tmp_path / "out")

    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    expected = policy.lm.state_dict()
    assert loaded.state_dict().keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.state_dict().items())
    tied = loaded.lm_head.weight is loaded.get_input_embeddings().weight
    assert tied == (kind == "tied_source")
    assert loaded.generation_config.eos_token_id == 3
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer(TEXT).input_ids == source.tokenizer()(TEXT).input_ids
    assert tokenizer.chat_template == source.tokenizer().chat_template


def test_all_files_have_the_mode_that_new_ones_have(tiny_source: ModelSource, tmp_path: Path):
    weights = dict(named_weights(ScoringModel(tiny_source.load()), None))
    before = os.umask(0o027)
    try:
        export(tiny_source, tiny_source.tokenizer(), Weights(weights, {"learned": torch.ones(2)}), tmp_path)
    finally:
        os.umask(before)
    files = list(tmp_path.iterdir())
    assert len(files) >= 5
    assert {file.stat().st_mode & 0o777 for file in files} == {0o640}


def test_bfloat16_is_kept(tiny_model_path: Path, tmp_path: Path):
    source = ModelSource(path=str(tiny_model_path), dtype="bfloat16")
    export(source, source.tokenizer(), Weights(dict(named_weights(ScoringModel(source.load()), None)), {}), tmp_path)
    assert AutoModelForCausalLM.from_pretrained(tmp_path, dtype="auto").dtype == torch.bfloat16


def test_weights_must_fit(tiny_source: ModelSource, tmp_path: Path):
    weights = dict(named_weights(ScoringModel(tiny_source.load()), None))
    missing = {name: tensor for name, tensor in weights.items() if name != "lm_head.weight"}
    with pytest.raises(ValueError, match=r"weights do not fit .*lm_head\.weight"):
        export(tiny_source, None, Weights(missing, {}), tmp_path)
    with pytest.raises(ValueError, match="weights do not fit .*surplus"):
        export(tiny_source, None, Weights({**weights, "surplus": torch.zeros(1)}, {}), tmp_path)
    assert list(tmp_path.iterdir()) == []
