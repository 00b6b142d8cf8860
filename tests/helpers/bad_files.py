"""Files and models that a run must refuse, written into the current directory."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from transformers import AutoTokenizer

from ngrpo.checkpoint.manifest import FORMAT

ROWS = {
    "good": [{"problem": "1 + 1", "answer": "2"}, {"problem": "2 + 2", "answer": 4}],
    "no_answer_field": [{"problem": "1 + 1", "solution": "2"}],
    "no_question_field": [{"question": "1 + 1", "answer": "2"}],
    "empty_fields": [{"problem": "", "answer": "2"}, {"problem": "1 + 1", "answer": None}],
    "lists_for_text": [{"problem": ["1", "+", "1"], "answer": "2"}, {"problem": {"text": "1"}, "answer": "2"}],
    "too_long": [{"problem": "word " * 500, "answer": "2"}],
    "no_rows": [],
}


def write_data() -> None:
    """good.json, no_rows.json ..., and files that are no data at all."""
    for name, rows in ROWS.items():
        Path(f"{name}.json").write_text(json.dumps(rows))
    Path("object.json").write_text('{"problem": "1 + 1", "answer": "2"}')
    Path("numbers.json").write_text("[1, 2]")
    Path("cut.json").write_text('[{"problem": "1 +')
    Path("cut.jsonl").write_text('{"problem": "1 + 1", "answer": "2"}\n{"problem": ')
    Path("binary.json").write_bytes(b"\xff\xfe\x00\x01")
    Path("cut.parquet").write_bytes(b"PAR1 and nothing else")
    Path("table.csv").write_text("problem,answer\n1 + 1,2\n")
    Path("no_files").mkdir()
    pq.write_table(pa.table({"prompt": ["1 + 1"], "answer": ["2"]}), "other_columns.parquet")


def write_models(tiny: Path) -> None:
    """Copies of a tiny model, each with one fault."""

    def copy(name: str, **config: Any) -> Path:
        folder = shutil.copytree(tiny, name)
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))
        return path.parent

    copy("model")
    for file in ("config.json", "tokenizer.json"):
        (copy(f"without_{file.partition('.')[0]}") / file).unlink()
    copy("smaller_vocabulary", vocab_size=40)
    copy(
        "sliding_window",
        layer_types=["sliding_attention", "full_attention"],
        use_sliding_window=True,
        sliding_window=16,
    )
    copy("unknown_type", model_type="nothing_known")
    remote = {"AutoConfig": "configuration_own.Own", "AutoModelForCausalLM": "modeling_own.Own"}
    copy("own_code", model_type="own", auto_map=remote)
    Path("half_config").mkdir()
    Path("half_config/config.json").write_text('{"model_type": "qwen2", "hid')
    without_end = copy("without_end", eos_token_id=None)
    (without_end / "generation_config.json").unlink(missing_ok=True)
    change_tokenizer(without_end, eos_token=None)
    change_tokenizer(copy("without_template"), chat_template=None)
    change_tokenizer(copy("broken_template"), chat_template="{% for m in messages %}{{ m.content }")
    change_tokenizer(
        copy("no_system_role"),
        chat_template="{{ raise_exception('no system role') if messages[0].role == 'system' }}"
        "{{ messages[-1].content }}",
    )


def change_tokenizer(folder: Path, **settings: Any) -> None:
    """Saves a tokenizer again with other settings."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for name, value in settings.items():
        setattr(tokenizer, name, value)
    for old in (*folder.glob("chat_template*"), *folder.glob("tokenizer_config.json"), *folder.glob("special_tokens*")):
        old.unlink()
    tokenizer.save_pretrained(folder)


def write_checkpoints() -> None:
    """Runs whose checkpoints are of another version, damaged, or finished."""
    for name, version, iteration in (("old_version", 99, 3), ("damaged", FORMAT, 3), ("finished", FORMAT, 40)):
        folder = Path(name) / "checkpoints" / f"iteration-{iteration}"
        folder.mkdir(parents=True)
        files = {"state.ckpt": {"bytes": 5, "sha256": "0"}}
        manifest = {"format": version, "written_ns": 1, "files": files, "run": {}}
        (folder / "manifest.json").write_text(json.dumps(manifest))
    shutil.copytree("damaged", "no_manifest")
    Path("no_manifest/checkpoints/iteration-3/manifest.json").unlink()
