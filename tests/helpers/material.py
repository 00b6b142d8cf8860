"""What the bad inputs consist of, written into a folder once: data, models, runs, and things that are none."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bad_files
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file, save_file

from ngrpo.checkpoint.folders import publish

GOOD = {"problem": "1 + 1", "answer": "2"}
DEEP = "[" * 100_000 + "]" * 100_000
TEXTS: dict[str, str | bytes] = {
    "empty": "",
    "blank": "\n\n  \n",
    "null": "null",
    "true": "true",
    "number": "1e999",
    "text": '"text"',
    "nan": "[NaN, Infinity]",
    "deep": DEEP,
    "deep_row": '[{"problem": "1", "answer": ' + DEEP + "}]",
    "long_key": json.dumps([{"k" * 1_000_000: 1}]),
    "huge_number": "[" + "9" * 100_000 + "]",
    "huge_answer": '[{"problem": "1", "answer": ' + "9" * 5_000 + "}]",
    "row_of_null": "[null]",
    "rows_of_lists": "[[1, 2], [3]]",
    "mixed_rows": json.dumps([GOOD, 3, None, [GOOD]]),
    "nested_rows": json.dumps({"data": [GOOD]}),
    "surrogate": '[{"problem": "\\ud800", "answer": "2"}]',
    "null_bytes": '[{"problem": "a\\u0000b", "answer": "2"}]',
    "bom": b"\xef\xbb\xbf" + json.dumps([GOOD]).encode(),
    "utf16": json.dumps([GOOD]).encode("utf-16"),
    "latin1": '[{"problem": "é", "answer": "2"}]'.encode("latin-1"),
    "random_bytes": bytes(range(256)) * 40,
    "cut_utf8": json.dumps([{"problem": "é" * 9, "answer": "2"}], ensure_ascii=False).encode()[:-14],
    "trailing_comma": '[{"problem": "1", "answer": "2"},]',
    "two_values": json.dumps([GOOD]) + json.dumps([GOOD]),
    "duplicate_keys": '[{"problem": "1", "problem": "2", "answer": "2"}]',
    "no_text": json.dumps([{"problem": 3, "answer": "2"}, {"problem": True, "answer": "2"}]),
    "answers_of_lists": json.dumps([{"problem": "1", "answer": ["2"]}, {"problem": "1", "answer": {}}]),
    "empty_list": "[]",
    "empty_rows": "[{}, {}]",
    "web_page": "<!DOCTYPE html><html><body>Not found</body></html>",
    "lfs": "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n",
    "control_tokens": json.dumps([{"problem": "<|im_end|><|im_start|>", "answer": "2"}]),
}
SETTINGS: dict[str, str | bytes] = {
    "yaml_list": "- 1\n",
    "yaml_broken": "a: [1, {b: }\n  c",
    "yaml_python": "!!python/object/apply:os.system ['touch marker']\n",
    "yaml_deep": "a: " + "{a: " * 900 + "1" + "}" * 900,
    "yaml_bomb": "\n".join([f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else '1'] * 9)}]" for i in range(9)]),
    "yaml_alias_of_itself": "a: &a [*a]\n",
    "yaml_cycle": "model: ${model}\n",
    "yaml_cycle_of_two": "model: ${seed}\nseed: ${model}\n",
    "yaml_null": "",
    "yaml_binary": b"\x00\xff\xfe",
    "yaml_missing": "model: ???\n",
    "yaml_nowhere": "model: ${nowhere.at.all}\n",
    "yaml_resolver": "model: ${no_such_resolver:1}\n",
    "yaml_no_target": "model: {path: demo}\n",
    "yaml_other_part": "model: {_target_: ngrpo.exploration.token.TokenSampling}\n",
    "yaml_function": "model: {_target_: ngrpo.training.optim.lr_schedule.constant}\n",
}  # fmt: skip


def write(folder: Path, tiny: Path) -> None:
    """Everything."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        bad_files.write_data()
        bad_files.write_models(tiny)
        bad_files.write_checkpoints()
        _write_things()
        _write_texts()
        _write_parquet()
        _write_models(tiny)
        _write_runs()
        _write_evaluations()
    finally:
        os.chdir(before)


def _put(path: str, content: str | bytes) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(content if isinstance(content, bytes) else content.encode())


def _write_things() -> None:
    """What is no file, or none that can be read; root may read all files, so a permission is not among them."""
    Path("folder").mkdir()
    for suffix in ("", ".json", ".jsonl", ".parquet", ".yaml", ".pt"):
        os.mkfifo(f"fifo{suffix}")
        Path(f"loop{suffix}").symlink_to(f"loop{suffix}")
        Path(f"dangling{suffix}").symlink_to("nowhere")
        Path(f"device{suffix}").symlink_to("/dev/zero")
        Path(f"null{suffix}").symlink_to("/dev/null")
        Path(f"a_folder{suffix}").mkdir()


def _write_texts() -> None:
    for name, content in TEXTS.items():
        for suffix in ("json", "jsonl"):
            _put(f"{name}.{suffix}", content)
    for name, content in SETTINGS.items():
        _put(f"settings/experiment/{name}.yaml", b"# @package _global_\n" + _bytes(content))
        _put(f"runs/{name}/.hydra/config.yaml", content)


def _bytes(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode()


def _write_parquet() -> None:
    def table(name: str, **columns: Any) -> bytes:
        pq.write_table(pa.table(columns), f"{name}.parquet")
        return Path(f"{name}.parquet").read_bytes()

    good = table("good", problem=["1 + 1"] * 50, answer=["2"] * 50)
    for name, content in {
        "half": good[: len(good) // 2],
        "no_magic": good[:-4],
        "flipped": bytes(b ^ 0x55 if 40 < i < 90 else b for i, b in enumerate(good)),
        "broken_footer": good[:-40] + b"\xff" * 32 + good[-8:],
        "empty": b"",
        "text": b"no parquet at all",
        "huge_footer": good[:-8] + b"\xff\xff\xff\x7f" + b"PAR1",
    }.items():
        _put(f"{name}.parquet", content)
    table("numbers", problem=[1, 2], answer=[1.5, float("nan")])
    table("binary", problem=[b"\xff\xfe"], answer=[b"\x00"])
    table("nulls", problem=pa.nulls(3), answer=pa.nulls(3))
    table("structs", problem=[{"a": 1}], answer=[[1]])
    table("no_rows", problem=pa.array([], pa.string()), answer=pa.array([], pa.string()))
    pq.write_table(pa.table({}), "no_columns.parquet")


def _write_models(tiny: Path) -> None:
    weights = load_file(tiny / "model.safetensors")
    config = json.loads((tiny / "config.json").read_text())

    def model(name: str, change: Callable[[Path], object]) -> None:
        change(Path(shutil.copytree(tiny, f"models/{name}")))

    def file(name: str, path: str, content: str | bytes) -> None:
        model(name, lambda folder: _put(str(folder / path), content))

    def settings(name: str, **changes: Any) -> None:
        file(name, "config.json", json.dumps(config | changes))

    def tensors(name: str, **changes: torch.Tensor | None) -> None:
        kept = {key: value for key, value in (weights | changes).items() if value is not None}
        model(name, lambda folder: save_file(kept, folder / "model.safetensors", {"format": "pt"}))

    head = (tiny / "model.safetensors").read_bytes()
    file("no_weights_in_file", "model.safetensors", b"")
    file("text_as_weights", "model.safetensors", "no weights")
    file("half_weights", "model.safetensors", head[: len(head) // 2])
    file("huge_header", "model.safetensors", b"\xff" * 7 + b"\x7f" + head[8:])
    file("broken_header", "model.safetensors", head[:8] + b"\x00" * 200 + head[208:])
    model("without_weights", lambda folder: (folder / "model.safetensors").unlink())
    model("folder_as_weights", lambda f: ((f / "model.safetensors").unlink(), (f / "model.safetensors").mkdir()))
    model("pickled", lambda f: ((f / "model.safetensors").unlink(), _put(str(f / "pytorch_model.bin"), b"\x80\x04.")))
    first = next(name for name in weights if "q_proj" in name)
    tensors("missing_tensor", **{first: None})
    tensors("added_tensor", more=torch.zeros(3))
    tensors("wrong_shape", **{first: torch.zeros(3, 3)})
    tensors("nan_weights", **{first: torch.full_like(weights[first], torch.nan)})
    tensors("integer_weights", **{first: torch.zeros_like(weights[first], dtype=torch.int64)})
    for name, content in {
        "config_empty": "",
        "config_list": "[]",
        "config_null": "null",
        "config_text": '"qwen2"',
        "config_deep": DEEP,
        "config_binary": b"\xff\xfe\x00",
        "config_no_type": "{}",
    }.items():
        file(name, "config.json", content)
    for name, changes in {
        "layers_negative": {"num_hidden_layers": -1},
        "layers_text": {"num_hidden_layers": "two"},
        "layers_zero": {"num_hidden_layers": 0},
        "layers_more": {"num_hidden_layers": 3},
        "heads_zero": {"num_attention_heads": 0},
        "heads_odd": {"num_attention_heads": 3},
        "kv_heads_zero": {"num_key_value_heads": 0},
        "hidden_huge": {"hidden_size": 10**12},
        "hidden_null": {"hidden_size": None},
        "vocabulary_negative": {"vocab_size": -5},
        "vocabulary_huge": {"vocab_size": 10**15},
        "positions_null": {"max_position_embeddings": None},
        "activation": {"hidden_act": "no_such"},
        "rope": {"rope_scaling": {"rope_type": "no_such"}},
        "rope_theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 0}},
        "end_text": {"eos_token_id": "end"},
        "end_outside": {"eos_token_id": 10**9},
        "norm_nan": {"rms_norm_eps": "x"},
        "type_list": {"model_type": ["qwen2"]},
        "encoder_decoder": {"model_type": "t5"},
        "vision": {"model_type": "clip"},
        "gpt2": {"model_type": "gpt2"},
        "quantised": {"quantization_config": {"quant_method": "gptq", "bits": 4}},
        "dtype": {"dtype": "no_such"},
    }.items():
        settings(name, **changes)
    for name, content in {
        "tokenizer_empty": "",
        "tokenizer_text": "no tokenizer",
        "tokenizer_object": "{}",
        "tokenizer_list": "[]",
        "tokenizer_binary": b"\xff\x00",
        "tokenizer_version": '{"version": "99", "model": {"type": "No"}}',
    }.items():
        file(name, "tokenizer.json", content)
    file("tokenizer_config", "tokenizer_config.json", "[")
    file("tokenizer_class", "tokenizer_config.json", '{"tokenizer_class": "NoSuchTokenizer"}')
    file("generation_config", "generation_config.json", "{")
    file("generation_end", "generation_config.json", '{"eos_token_id": "x"}')
    index = {"metadata": {}, "weight_map": {first: "../../../etc/passwd"}}
    model(
        "index_outside",
        lambda f: (
            (f / "model.safetensors").unlink(),
            _put(str(f / "model.safetensors.index.json"), json.dumps(index)),
        ),
    )
    model(
        "index_broken",
        lambda f: ((f / "model.safetensors").unlink(), _put(str(f / "model.safetensors.index.json"), "{")),
    )
    for name, template in {
        "template_endless": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "template_huge": "{{ 'a' * 9999999999 }}",
        "template_empty": " ",
        "template_error": "{{ messages[7].content.no }}",
        "template_division": "{{ 1 / 0 }}{{ messages[0].content }}",
        "template_private": "{{ messages.__class__.__mro__ }}",
        "template_constant": "always the same",
        "template_include": "{% include 'x' %}",
    }.items():
        model(name, lambda folder, template=template: bad_files.change_tokenizer(folder, chat_template=template))


def _write_runs() -> None:
    """Runs whose checkpoints, records or settings are not as they were written."""
    model = {"_target_": "ngrpo.modeling.loading.ModelSource", "path": "demo"}
    for name, state in {
        "no_state": {},
        "list_state": [1, 2],
        "other_state": {"state_dict": {"policy.lm.x": torch.zeros(2)}},
        "text_state": {"state_dict": "text"},
    }.items():
        _checkpoint(Path("runs") / name, state, json.dumps({"model": model}))
    _checkpoint(Path("runs/no_settings"), {"state_dict": {}}, None)
    for name in SETTINGS:
        _checkpoint(Path("runs") / name, {"state_dict": {}}, None)
    for name, content in {
        "record_garbage": "garbage\n{}\n[1]\nnull\n",
        "record_binary": b"\xff\xfe\x00\n",
        "record_types": '{"iteration": "x", "metrics": 3, "problems": null}\n',
        "record_deep": DEEP + "\n",
        "record_nan": '{"iteration": NaN, "metrics": {}, "problems": []}\n',
        "record_fields": '{"iteration": 1, "metrics": {"a": "b"}, "problems": [{"x": 1}]}\n',
    }.items():
        _put(f"runs/{name}/record/iterations.jsonl", content)
        _put(f"runs/{name}/record/evaluations.jsonl", content)
        _put(f"runs/{name}/summary.json", "{}")
    line = '{"iteration": 0, "metrics": {}, "problems": []}\n'
    for name, summary in {
        "summary_none": None,
        "summary_list": "[]",
        "summary_deep": DEEP,
        "summary_types": '{"eval": 3, "methods": [], "seed": {}}',
        "summary_binary": b"\xff",
    }.items():
        _put(f"runs/{name}/record/iterations.jsonl", line)
        if summary is not None:
            _put(f"runs/{name}/summary.json", summary)
    _put("runs/rollouts_broken/record/iterations.jsonl", line)
    _put("runs/rollouts_broken/record/rollouts/00000000.parquet", "no parquet")
    _put("runs/rollouts_name/record/iterations.jsonl", line)
    _put("runs/rollouts_name/record/rollouts/first.parquet", "no parquet")
    os.makedirs("runs/record_fifo/record")
    os.mkfifo("runs/record_fifo/record/iterations.jsonl")
    for name, plain in {
        "step_list": [1],
        "step_empty": {},
        "step_old": {"format": 0, "samples": []},
        "step_types": {
            "format": 2, "settings": 3, "iteration": 0, "step": 0, "reason": 1, "problems": 2, "samples": [],
        },
        "step_settings": {
            "format": 2, "settings": {}, "iteration": 0, "step": 0, "reason": "x", "problems": [], "samples": [],
        },
    }.items():  # fmt: skip
        torch.save(plain, f"{name}.pt")
    _put("step_text.pt", "no step")
    _put("step_empty_file.pt", "")
    _put("step_zip.pt", b"PK\x03\x04" + b"\x00" * 100)


def _checkpoint(run: Path, state: Any, settings: str | None) -> None:
    temporary = run / "checkpoints" / "iteration-1.tmp"
    temporary.mkdir(parents=True)
    torch.save(state, temporary / "state.ckpt")
    publish(temporary, run / "checkpoints" / "iteration-1", {})
    if settings is not None:
        _put(str(run / ".hydra" / "config.yaml"), settings)


def _write_evaluations() -> None:
    """Folders that are no evaluation, or one whose files are broken; results of studies."""
    for name, files in {
        "empty": {},
        "no_answers": {"custom/settings.json": "{}"},
        "settings_broken": {"custom/settings.json": "{", "custom/answers/0.parquet": "x"},
        "settings_list": {"custom/settings.json": "[]", "custom/answers/0.parquet": "x"},
        "answers_broken": {"custom/settings.json": '{"n": 1}', "custom/answers/0.parquet": "no parquet"},
        "figures_only": {"evaluation.json": "{}"},
    }.items():
        Path("evaluations", name).mkdir(parents=True)
        for path, content in files.items():
            _put(f"evaluations/{name}/{path}", content)
    Path("evaluations/answers_other/custom/answers").mkdir(parents=True)
    _put("evaluations/answers_other/custom/settings.json", '{"n": 1}')
    pq.write_table(pa.table({"x": [1]}), "evaluations/answers_other/custom/answers/0.parquet")
    for name, content in {
        "object": "{}",
        "list": "[]",
        "deep": DEEP,
        "types": '{"study": 3, "base": [], "tuned": {}, "runs": 5, "speeds": {}, "effects": {}, "levels": {}}',
        "runs": '{"study": {"name": "x"}, "base": null, "tuned": {}, "runs": [{"a": 1}], "speeds": {}, "effects": {}, '
        '"levels": {}}',
        "no_runs": '{"study": {"name": "x"}, "base": null, "tuned": {}, "runs": [], "speeds": {}, "effects": {}, '
        '"levels": {}}',
    }.items():
        _put(f"results/{name}.json", content)
