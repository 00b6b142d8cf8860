"""Files of strangers: read in whatever encoding, or refused in one sentence; nothing hangs, nothing is a traceback."""

import gzip
import io
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ngrpo.data.sources import open_source
from ngrpo.errors import SettingError
from ngrpo.types.problems import Excluded, Problem

GOOD = [{"problem": "what is 1", "answer": "1"}, {"problem": "what is 2", "answer": 2}]
ROWS = [Problem(0, "what is 1", "1"), Problem(1, "what is 2", "2")]
LINES = "\n".join(map(json.dumps, GOOD))


def parquet() -> bytes:
    held = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(GOOD[:1] * 50), held)
    return held.getvalue()


READ = {
    "bom.json": json.dumps(GOOD).encode("utf-8-sig"),
    "bom.jsonl": LINES.encode("utf-8-sig"),
    "utf16.json": json.dumps(GOOD).encode("utf-16"),
    "utf16.jsonl": LINES.encode("utf-16"),
    "utf32.jsonl": LINES.encode("utf-32-le"),
    "crlf.jsonl": LINES.replace("\n", "\r\n").encode() + b"\r\n\r\n",
    "twice.json": b'[{"problem": "x", "problem": "what is 1", "answer": "1"}, {"problem": "what is 2", "answer": 2}]',
}


@pytest.mark.parametrize("name", READ)
def test_encodings_and_line_ends_do_not_matter(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(READ[name])
    assert list(open_source(str(tmp_path / name)).rows()) == ROWS


BAD = {
    "empty.json": b"",
    "empty.jsonl": b"",
    "empty.parquet": b"",
    "none.json": b"[]",
    "null.json": b"null",
    "number.json": b"3",
    "text.json": b'"what is 1"',
    "object.json": b'{"problem": "what is 1", "answer": "1"}',
    "lists.json": b'[["what is 1", "1"]]',
    "mixed.json": b'[{"problem": "a", "answer": "1"}, 3]',
    "nulls.json": b"[null, null]",
    "cut.json": b'[{"problem": "what',
    "latin.json": '[{"problem": "é", "answer": "1"}]'.encode("latin-1"),
    "binary.json": bytes(range(256)),
    "zeros.json": bytes(64),
    "binary.jsonl": os.urandom(200),
    "two.json": b"[] []",
    "digits.json": b'[{"problem": "a", "answer": ' + b"9" * 10_000 + b"}]",
    "deep.json": b"[" * 200_000,
    "deep_objects.json": b'{"a":' * 200_000,
    "deep.jsonl": b'{"problem":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "cut.parquet": parquet()[:-40],
    "head.parquet": parquet()[:60],
    "holes.parquet": parquet()[:20] + bytes(60) + parquet()[80:],
    "text.parquet": LINES.encode(),
    "magic.parquet": b"PAR1" + bytes(20) + b"PAR1",
    "packed.json": gzip.compress(json.dumps(GOOD).encode()),
    "other.csv": b"problem,answer\na,1\n",
    "other.json.gz": gzip.compress(b"[]"),
    "no_suffix": b"[]",
    "fields.json": b'[{"question": "a", "solution": "1"}]',
    "surrogates.parquet": b"\xed\xa0\x80" * 30,
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(BAD[name])
    refused(str(tmp_path / name))


PLACES: dict[str, Callable[[Path], object]] = {
    "pipe.json": os.mkfifo,
    "folder.json": Path.mkdir,
    "nowhere.json": lambda path: None,
    "dangling.json": lambda path: path.symlink_to(path.parent / "gone.json"),
    "circle.json": lambda path: path.symlink_to(path),
    "device.json": lambda path: path.symlink_to("/dev/zero"),
    "socket.json": lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
}


@pytest.mark.parametrize("name", PLACES)
def test_what_is_no_regular_file_is_refused_without_waiting(name: str, tmp_path: Path) -> None:
    PLACES[name](tmp_path / name)
    refused(str(tmp_path / name))


@pytest.mark.parametrize(
    "path",
    ["", " ", "\0", "a\0b.json", "x" * 5000 + ".json", "~nobody-by-that-name/x.json", "/dev/zero", "/proc/self/mem"],
)
def test_what_is_no_path_is_refused(path: str) -> None:
    refused(path)


def test_every_part_of_a_list_counts(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text(json.dumps(GOOD))
    for other in ("", str(tmp_path / "gone.json")):
        with pytest.raises(SettingError, match="data.path="):
            open_source([str(tmp_path / "good.json"), other])


def refused(path: str) -> None:
    with pytest.raises(SettingError) as caught:
        open_source(path)
    said = str(caught.value)
    assert said.startswith("data.")
    assert "\n" not in said
    assert said.endswith(".")


def test_bad_rows_are_excluded_with_a_reason(tmp_path: Path) -> None:
    rows = r"""[{"problem": "half \ud800", "answer": "1"}, {"problem": "a", "answer": "\udfff"},
        {"problem": "whole \ud83d\ude00", "answer": "1"}, {"problem": "nul \u0000", "answer": "1"},
        {"problem": "a", "answer": NaN}, {"problem": "a", "answer": Infinity}, {"problem": "a", "answer": -1e999},
        {"problem": "a", "answer": [1]}, {"problem": "a", "answer": {"b": 1}}, {"problem": ["a"], "answer": 1},
        {"problem": 5, "answer": 1}, {"problem": true, "answer": 1}, {"problem": "  ", "answer": 1}, {"answer": 1},
        {"problem": "a"}, {"problem": "a", "answer": ""}, {"problem": "a", "answer": true}]"""
    (tmp_path / "rows.json").write_text(rows)
    source = open_source(str(tmp_path / "rows.json"))
    found = [row.reason if isinstance(row, Excluded) else row.question for row in source.rows()]
    assert found == [
        *["invalid_characters"] * 2,
        "whole 😀",
        "nul \0",
        *["missing_answer"] * 3,
        *["answer_not_scalar"] * 2,
        *["question_not_text"] * 3,
        *["missing_question"] * 2,
        *["missing_answer"] * 2,
        "a",
    ]
