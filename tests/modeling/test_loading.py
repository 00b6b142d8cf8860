"""What a model folder must hold, and what is said when it does not."""

from pathlib import Path

import pytest
import torch
from made_models import tiny_config
from transformers import GenerationConfig, LlamaConfig, PretrainedConfig, Qwen2Config

from ngrpo.errors import SettingError
from ngrpo.modeling.loading import ModelSource


class NoEndToken:
    eos_token_id = None


def assert_one_sentence(error: SettingError, setting: str) -> None:
    message = str(error)
    assert message.startswith(setting)
    assert message.endswith(".")
    assert "\n" not in message


def test_dtype_is_one_of_three():
    with pytest.raises(SettingError) as caught:
        ModelSource(dtype="float8")
    assert_one_sentence(caught.value, "model.dtype=float8 ")
    assert "float32, bfloat16, float16" in str(caught.value)


@pytest.mark.parametrize(
    ("folder", "sentence"), [("nothing", "is a path at which there is nothing"), (".", "holds no model")]
)
def test_a_path_without_a_model_is_refused(tmp_path: Path, folder: str, sentence: str):
    path = tmp_path / folder
    source = ModelSource(path=str(path))
    for read in (source.config, source.load):
        with pytest.raises(SettingError) as caught:
            read()
        assert_one_sentence(caught.value, f"model.path={path} {sentence}")


def test_a_sliding_window_is_refused_when_the_configuration_is_read(tmp_path: Path):
    Qwen2Config(use_sliding_window=True, sliding_window=8, max_window_layers=0).save_pretrained(tmp_path)
    with pytest.raises(SettingError) as caught:
        ModelSource(path=str(tmp_path)).config()
    assert_one_sentence(caught.value, f"model.path={tmp_path} has layers of type sliding_attention")


@pytest.mark.parametrize("config", [Qwen2Config(), LlamaConfig()])
def test_a_model_without_a_tokenizer_is_refused(tmp_path: Path, config: PretrainedConfig):
    config.save_pretrained(tmp_path)
    with pytest.raises(SettingError) as caught:
        ModelSource(path=str(tmp_path)).tokenizer()
    assert_one_sentence(caught.value, f"model.path={tmp_path} holds no tokenizer")


def test_models_come_in_eval_mode_and_in_their_dtype(tiny_model_path: Path):
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        model = ModelSource(path=str(tiny_model_path), dtype=name).load()
        assert not model.training
        assert {p.dtype for p in model.parameters()} == {dtype}


@pytest.mark.parametrize(("listed", "expected"), [([5, 3], (3, 5)), (9, (3, 9)), (3, (3,)), (None, (3,))])
def test_stop_ids_are_those_of_generation_config_and_tokenizer(
    tmp_path: Path, tiny_source: ModelSource, listed: list[int] | int | None, expected: tuple[int, ...]
):
    tiny_config("llama", eos_token_id=40).save_pretrained(tmp_path)
    GenerationConfig(eos_token_id=listed).save_pretrained(tmp_path)
    assert ModelSource(path=str(tmp_path)).stop_ids(tiny_source.tokenizer()) == expected


@pytest.mark.parametrize(("listed", "expected"), [([40, 41], (3, 40, 41)), (40, (3, 40)), (None, (3,))])
def test_without_a_generation_config_the_models_own_decides(
    tmp_path: Path, tiny_source: ModelSource, listed: list[int] | int | None, expected: tuple[int, ...]
):
    tiny_config("llama", eos_token_id=listed).save_pretrained(tmp_path)
    source = ModelSource(path=str(tmp_path))
    assert source.stop_ids(tiny_source.tokenizer()) == expected
    own = GenerationConfig.from_model_config(source.config()).eos_token_id
    assert own == listed


def test_a_model_without_an_end_is_refused(tmp_path: Path):
    tiny_config("llama", eos_token_id=None).save_pretrained(tmp_path)
    with pytest.raises(SettingError) as caught:
        ModelSource(path=str(tmp_path)).stop_ids(NoEndToken())
    assert_one_sentence(caught.value, f"model.path={tmp_path} names no end-of-sequence token")


@pytest.mark.parametrize("listed", [64, -1, [3, 1000]])
def test_an_end_that_is_no_token_is_refused(tmp_path: Path, tiny_source: ModelSource, listed: int | list[int]):
    tiny_config("llama", eos_token_id=listed).save_pretrained(tmp_path)
    with pytest.raises(SettingError) as caught:
        ModelSource(path=str(tmp_path)).stop_ids(tiny_source.tokenizer())
    assert_one_sentence(caught.value, f"model.path={tmp_path} names the end-of-sequence token")


def test_demo_is_the_embedded_folder():
    assert Path(ModelSource().location, "config.json").exists()
    assert ModelSource(path="some/name").location == "some/name"
