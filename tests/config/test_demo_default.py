"""The demo's defaults for models of its shape, whatever folder they lie in, and for no others."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from places import ROOT
from transformers import AutoConfig

from ngrpo.config.demo_default import is_demo
from ngrpo.config.schema import register
from ngrpo.modeling.loading import MODEL_PATH


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """The configuration of the demo model as transformers writes it anew, in another precision."""
    config = AutoConfig.from_pretrained(MODEL_PATH, dtype="bfloat16")
    config.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def change(folder: Path, **settings: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def composed(root: str, model: Path | str) -> DictConfig:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        return compose(root, overrides=[f"model.path={model}"])


@pytest.mark.parametrize("root", ["train", "evaluate", "sample", "serve"])
def test_a_model_trained_from_the_demo_has_the_defaults_of_the_demo(root: str, export: Path) -> None:
    demo, trained, other = (
        cast(dict[str, Any], OmegaConf.to_container(composed(root, model), resolve=True))
        for model in ("demo", export, "other/model")
    )
    assert demo["model"].pop("path") != trained["model"].pop("path")
    if root == "evaluate":
        assert demo.pop("out") != trained.pop("out")  # the time of day
    assert trained == demo
    assert (trained["rollout"]["max_new_tokens"], trained["data"]["max_prompt_tokens"]) == (64, 128)
    assert other["rollout"]["max_new_tokens"] == 8192


def test_a_relative_folder_is_found(export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(export.parent)
    assert is_demo("model")
    assert not is_demo("other")


@pytest.mark.parametrize(
    "difference",
    [{"max_position_embeddings": 4096}, {"hidden_size": 256}, {"vocab_size": 577}, {"model_type": "llama"}],
)
def test_another_shape_is_another_model(difference: dict[str, Any], export: Path) -> None:
    change(export, **difference)
    assert not is_demo(str(export))


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_folder_is_another_model(content: bytes, export: Path) -> None:
    (export / "config.json").write_bytes(content)
    assert not is_demo(str(export))


@pytest.mark.parametrize("path", [None, 3, "", "no/such/folder", "a\0b"])
def test_what_is_no_folder_is_another_model(path: Any) -> None:
    assert not is_demo(path)
