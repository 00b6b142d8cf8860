"""Damaged model folders: one sentence each, and what can be seen without reading the weights is seen without it."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from ngrpo.entrypoints.input_validation import check_template, check_tokens
from ngrpo.errors import SettingError
from ngrpo.modeling.loading import ModelSource

Damage = Callable[[Path], None]
WEIGHTS, INDEX, LAST = "model.safetensors", "model.safetensors.index.json", "model-00002-of-00002.safetensors"
NORM = "model.layers.0.input_layernorm.weight"
UP = "model.layers.1.mlp.up_proj.weight"


def removed(*names: str) -> Damage:
    def damage(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return damage


def written(name: str, content: bytes) -> Damage:
    return replaced(name, lambda path: path.write_bytes(content))


def cut(name: str, share: float) -> Damage:
    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * share)])

    return damage


def longer(name: str) -> Damage:
    def damage(folder: Path) -> None:
        with (folder / name).open("ab") as file:
            file.write(bytes(100))

    return damage


def replaced(name: str, make: Callable[[Path], Any]) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return damage


def changed(name: str, **settings: Any) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | settings))

    return damage


def without(name: str, *settings: str) -> Damage:
    def damage(folder: Path) -> None:
        left = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({key: left[key] for key in left if key not in settings}))

    return damage


def tensors(change: Callable[[dict[str, torch.Tensor]], Any], name: str = WEIGHTS) -> Damage:
    def damage(folder: Path) -> None:
        held = load_file(folder / name)
        change(held)
        save_file(held, folder / name, metadata={"format": "pt"})

    return damage


def number(name: str, value: float) -> Damage:
    return tensors(lambda held: held[name].view(-1)[-1].fill_(value))


def sharded(damage: Damage) -> Damage:
    def both(folder: Path) -> None:
        model = AutoModelForCausalLM.from_pretrained(folder)
        (folder / WEIGHTS).unlink()
        model.save_pretrained(folder, max_shard_size="80KB")
        assert (folder / LAST).exists()
        damage(folder)

    return both


def index(change: Callable[[dict[str, str]], Any]) -> Damage:
    def damage(folder: Path) -> None:
        held = json.loads((folder / INDEX).read_text())
        change(held["weight_map"])
        (folder / INDEX).write_text(json.dumps(held))

    return sharded(damage)


CONFIG, TOKENIZER, OF_TOKENIZER, GENERATION = (
    "config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
)  # fmt: skip
BAD_VALUES: list[dict[str, Any]] = [
    {"hidden_size": -32}, {"hidden_size": 0}, {"hidden_size": "32"}, {"hidden_size": None}, {"hidden_size": 30},
    {"hidden_size": 32.0}, {"num_attention_heads": 0}, {"num_attention_heads": 5}, {"num_attention_heads": -4},
    {"num_key_value_heads": 3}, {"num_key_value_heads": 0}, {"num_key_value_heads": "two"}, {"num_hidden_layers": -1},
    {"num_hidden_layers": 0}, {"num_hidden_layers": "many"}, {"num_hidden_layers": None}, {"vocab_size": -1},
    {"vocab_size": "64"}, {"vocab_size": None}, {"intermediate_size": -64}, {"intermediate_size": None},
    {"max_position_embeddings": 0}, {"max_position_embeddings": "long"}, {"rms_norm_eps": -1.0}, {"rms_norm_eps": "no"},
    {"hidden_act": "unknown"}, {"hidden_act": 3}, {"model_type": "nonsense"}, {"model_type": None}, {"model_type": 7},
    {"rope_parameters": {"rope_type": "unknown", "rope_theta": 1e4}}, {"rope_parameters": "default"},
    {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, {"rope_parameters": {"rope_theta": -1.0}},
    {"rope_parameters": {"rope_theta": "big"}}, {"layer_types": ["full_attention"]}, {"layer_types": "full_attention"},
    {"layer_types": ["unknown"] * 2}, {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
    {"quantization_config": {"quant_method": "fp8"}}, {"quantization_config": "awq"}, {"is_encoder_decoder": True},
    {"tie_word_embeddings": "yes"}, {"sliding_window": "8"}, {"eos_token_id": "end"}, {"dtype": "float7"},
]  # fmt: skip

CHEAP: dict[str, Damage] = {
    "no config": removed(CONFIG),
    "empty config": written(CONFIG, b""),
    "garbage config": written(CONFIG, b"\x00\xff\x80garbage"),
    "cut config": cut(CONFIG, 0.5),
    "config is a list": written(CONFIG, b"[1, 2]"),
    "config is a number": written(CONFIG, b"3"),
    "config is null": written(CONFIG, b"null"),
    "config without a type": without(CONFIG, "model_type"),
    "config in a folder": replaced(CONFIG, Path.mkdir),
    "config in a pipe": replaced(CONFIG, os.mkfifo),
    "config nested": written(CONFIG, b'{"a":' * 100_000),
    "config links nowhere": replaced(CONFIG, lambda path: path.symlink_to("nowhere")),
    "no weights": removed(WEIGHTS),
    "empty weights": written(WEIGHTS, b""),
    "garbage weights": written(WEIGHTS, bytes(range(256)) * 50),
    "text in place of weights": written(WEIGHTS, b"version https://git-lfs.github.com/spec/v1\nsize 9\n"),
    "cut weights": cut(WEIGHTS, 0.7),
    "weights cut in the header": cut(WEIGHTS, 0.001),
    "weights with a tail": longer(WEIGHTS),
    "weights in a folder": replaced(WEIGHTS, Path.mkdir),
    "weights in a pipe": replaced(WEIGHTS, os.mkfifo),
    "weights link nowhere": replaced(WEIGHTS, lambda path: path.symlink_to("nowhere")),
    "no shard": sharded(removed(LAST)),
    "cut shard": sharded(cut(LAST, 0.6)),
    "empty shard": sharded(written(LAST, b"")),
    "garbage index": sharded(written(INDEX, b"{")),
    "empty index": sharded(written(INDEX, b"{}")),
    "index is a list": sharded(written(INDEX, b"[]")),
    "index of numbers": sharded(written(INDEX, b'{"weight_map": {"a": 3}}')),
    "index without names": sharded(written(INDEX, b'{"weight_map": []}')),
    "index names another file": index(lambda places: places.update({NORM: "other.safetensors"})),
    "index leads outside": index(lambda places: places.update({NORM: "../model.safetensors"})),
    "index names the wrong shard": index(lambda places: places.update({NORM: LAST, "lm_head.weight": LAST, UP: "x"})),
    "index names too much": index(lambda places: places.update({"model.other.weight": LAST})),
    "no tokenizer": removed(TOKENIZER, OF_TOKENIZER),
    "empty tokenizer": written(TOKENIZER, b""),
    "garbage tokenizer": written(TOKENIZER, b"\x00\xff"),
    "cut tokenizer": cut(TOKENIZER, 0.5),
    "tokenizer is a list": written(TOKENIZER, b"[]"),
    "tokenizer without a model": without(TOKENIZER, "model"),
    "tokenizer of another kind": changed(TOKENIZER, model={"type": "Nonsense"}),
    "garbage tokenizer config": written(OF_TOKENIZER, b"{{"),
    "tokenizer config is a list": written(OF_TOKENIZER, b"[]"),
    "garbage template": written("chat_template.jinja", b"\xff\xfe{{"),
    "garbage generation config": written(GENERATION, b"{{"),
    "generation config is a list": written(GENERATION, b"[]"),
    "generation config ends with words": changed(GENERATION, eos_token_id="end"),
    "generation config ends outside": changed(GENERATION, eos_token_id=10**6),
    "generation config ends with a list of lists": changed(GENERATION, eos_token_id=[[3]]),
    **{f"config has {values}": changed(CONFIG, **values) for values in BAD_VALUES},
}
"""Seen before the weights are read."""

COSTLY: dict[str, Damage] = {
    "lacks a norm": tensors(lambda held: held.pop(NORM)),
    "lacks a product": tensors(lambda held: held.pop(UP)),
    "lacks the head": tensors(lambda held: held.pop("lm_head.weight")),
    "lacks the embedding": tensors(lambda held: held.pop("model.embed_tokens.weight")),
    "lacks a bias": tensors(lambda held: held.pop("model.layers.1.self_attn.q_proj.bias")),
    "holds nothing": tensors(dict.clear),
    "holds a layer more": tensors(lambda held: held.update({UP.replace(".1.", ".2."): held[UP].clone()})),
    "holds an unknown tensor": tensors(
        lambda held: held.update({"model.layers.0.self_attn.q_norm.weight": torch.ones(8)})
    ),
    "other names": tensors(lambda held: held.update({f"net.{name}": held.pop(name) for name in list(held)})),
    "wrong shape": tensors(lambda held: held.update({UP: held[UP][:-1].clone()})),
    "turned round": tensors(lambda held: held.update({UP: held[UP].T.contiguous()})),
    "rows missing": tensors(lambda held: held.update({"lm_head.weight": held["lm_head.weight"][:60].clone()})),
    "a number in place of a tensor": tensors(lambda held: held.update({NORM: torch.tensor(1.0)})),
    "NaN in a norm": number(NORM, float("nan")),
    "NaN in the head": number("lm_head.weight", float("nan")),
    "infinite": number(UP, float("inf")),
    "minus infinite": number("model.embed_tokens.weight", float("-inf")),
    "shard lacks a tensor": sharded(tensors(lambda held: held.pop(sorted(held)[0]), LAST)),
    "config has more layers": changed(CONFIG, num_hidden_layers=3, layer_types=None, max_window_layers=3),
    "config has fewer layers": changed(CONFIG, num_hidden_layers=1, layer_types=None, max_window_layers=1),
    "config is wider": changed(CONFIG, hidden_size=64),
    "config has more rows": changed(CONFIG, vocab_size=80),
    "config has other heads": changed(CONFIG, num_key_value_heads=4),
    "config is of another type": changed(CONFIG, model_type="llama", architectures=["LlamaForCausalLM"]),
}
"""Seen when they are."""


@pytest.fixture
def folder(tiny_model_path: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "model"
    shutil.copytree(tiny_model_path, copy)
    return copy


def before_weights(source: ModelSource) -> None:
    """What a run does with the folder before it loads anything."""
    source.check_files()
    tokenizer = source.tokenizer()
    check_tokens(source, tokenizer, source.config())
    check_template(source, tokenizer, plain=False)
    source.stop_ids(tokenizer)


def assert_refused(folder: Path, read: Callable[[ModelSource], Any]) -> None:
    with pytest.raises(SettingError) as caught:
        read(ModelSource(path=str(folder)))
    message = str(caught.value)
    assert message.startswith(f"model.path={folder}")
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 600


def test_the_whole_folder_is_accepted_in_one_file_and_in_shards(folder: Path):
    for damage in (lambda _: None, sharded(lambda _: None)):
        damage(folder)
        before_weights(ModelSource(path=str(folder)))
        ModelSource(path=str(folder)).load()


@pytest.mark.parametrize("damage", CHEAP)
def test_damage_is_found_before_the_weights_are_read(folder: Path, damage: str):
    CHEAP[damage](folder)
    assert_refused(folder, before_weights)


@pytest.mark.parametrize("damage", COSTLY)
def test_damage_is_found_when_the_weights_are_read(folder: Path, damage: str, capfd: pytest.CaptureFixture[str]):
    COSTLY[damage](folder)
    assert_refused(folder, ModelSource.load)
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS, TOKENIZER])
def test_a_file_is_no_folder(folder: Path, name: str):
    assert_refused(folder / name, ModelSource.config)


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero", ""])
def test_devices_and_nothing_are_no_folder(path: str):
    with pytest.raises(SettingError, match=r"^model\.path="):
        ModelSource(path=path).config()


def test_an_empty_folder_is_refused(tmp_path: Path):
    assert_refused(tmp_path, ModelSource.config)


def test_tied_heads_are_not_missing(folder: Path):
    changed(CONFIG, tie_word_embeddings=True)(folder)
    tensors(lambda held: held.pop("lm_head.weight"))(folder)
    model = ModelSource(path=str(folder)).load()
    assert model.lm_head.weight is model.get_input_embeddings().weight


def test_tables_of_old_checkpoints_are_not_left_over(folder: Path):
    tensors(lambda held: held.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}))(folder)
    ModelSource(path=str(folder)).load()
