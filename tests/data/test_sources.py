import json
import os
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ngrpo.data.sources import DemoSource, Fields, FileSource, HubSource, ProblemSource, open_source
from ngrpo.data.sources import hub as hub_module
from ngrpo.data.sources.hub import shuffle_buffered
from ngrpo.errors import SettingError
from ngrpo.types.problems import Excluded, Problem

RECORDS: list[dict[str, Any]] = [
    {"problem": "what is 0", "answer": "0", "difficulty": 1.0},
    {"problem": "what is 1", "answer": None, "difficulty": 1.0},
    {"problem": "what is 2", "answer": "2.0", "difficulty": 1.0},
    {"problem": "", "answer": "3", "difficulty": 1.0},
    {"problem": "line\u2028break 4", "answer": "4", "difficulty": 1.0},
]
ROWS = [
    Problem(0, "what is 0", "0", 1.0),
    Excluded("missing_answer"),
    Problem(2, "what is 2", "2", 1.0),
    Excluded("missing_question"),
    Problem(4, "line\u2028break 4", "4", 1.0),
]


def write_json(file: Path, records: list[dict[str, Any]]) -> None:
    file.write_text(json.dumps(records, ensure_ascii=False), encoding="utf-8")


def write_jsonl(file: Path, records: list[dict[str, Any]]) -> None:
    file.write_text("\n\n".join(json.dumps(r, ensure_ascii=False) for r in records) + "\n", encoding="utf-8")


def write_parquet(file: Path, records: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(records), file)


WRITERS: dict[str, Callable[[Path, list[dict[str, Any]]], None]] = {
    ".json": write_json,
    ".jsonl": write_jsonl,
    ".parquet": write_parquet,
}


def hub_source(
    monkeypatch: pytest.MonkeyPatch, records: list[dict[str, Any]], features: datasets.Features | None = None
) -> HubSource:
    def load_dataset(name: str, part: str | None, split: str, streaming: bool) -> datasets.IterableDataset:
        assert (name, part, split, streaming) == ("org/name", None, "train", True)
        return datasets.IterableDataset.from_generator(lambda: iter(records), features=features)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    source = open_source("org/name")
    assert isinstance(source, HubSource)
    return source


@pytest.mark.parametrize("suffix", WRITERS)
def test_file_formats_give_the_same_rows(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"rows{suffix}"
    WRITERS[suffix](file, RECORDS)
    source = open_source(str(file))
    assert list(source.rows()) == ROWS
    assert list(source.rows(3)) == ROWS[3:]


def test_several_files_are_numbered_through(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "b.jsonl", RECORDS[2:])
    write_json(tmp_path / "a.json", RECORDS[:2])
    (tmp_path / "README.md").write_text("not data")
    listed = [str(tmp_path / "a.json"), str(tmp_path / "b.jsonl")]
    for path in (listed, str(tmp_path), str(tmp_path / "*.json*")):
        assert list(open_source(path).rows()) == ROWS
    assert list(open_source(listed[::-1]).rows())[3] == Problem(3, "what is 0", "0", 1.0)


ROWS_AS_JSON = '[{"problem": "q", "answer": "1"}]'


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["train.jsonl", "test.jsonl"], "test.jsonl, train.jsonl"),
        (["a-train-00.json", "a_Train_1.json", "a.validation.json"], "a-train-00.json, a.validation.json"),
        (["questions_dev.json", "questions_eval.json"], "questions_dev.json, questions_eval.json"),
    ],
)
def test_a_directory_with_several_splits_is_refused_and_a_list_of_its_files_is_not(
    tmp_path: Path, names: list[str], shown: str
) -> None:
    for name in names:
        (tmp_path / name).write_text('{"problem": "q", "answer": "1"}' if "jsonl" in name else ROWS_AS_JSON)
    first = tmp_path / shown.split(", ")[0]
    expected = (
        f"data.path={str(tmp_path)!r} holds files of several splits ({shown}); name those to read, such as "
        f"data.path={str(first)!r}, or a list of them."
    )
    for path in (str(tmp_path), [str(tmp_path)]):
        with pytest.raises(SettingError) as caught:
            open_source(path)
        assert str(caught.value) == expected
    assert len(list(open_source([str(tmp_path / name) for name in names]).rows())) == len(names)


@pytest.mark.parametrize(
    "names", [["train-0.json", "train-1.json"], ["latest.json", "contest.json", "train.json"], ["train-and-test.json"]]
)
def test_a_directory_with_one_split_is_read(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_text(ROWS_AS_JSON)
    assert len(list(open_source(str(tmp_path)).rows())) == len(names)


def test_file_identity_is_of_the_content(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    for place in (tmp_path, tmp_path / "copy"):
        write_json(place / "rows.json", RECORDS)
    identity = open_source(str(tmp_path / "rows.json")).identity
    assert open_source(str(tmp_path / "copy" / "rows.json")).identity == identity
    write_json(tmp_path / "rows.json", RECORDS[:-1])
    assert open_source(str(tmp_path / "rows.json")).identity != identity


def assert_epochs_are_seekable_permutations(source: ProblemSource) -> None:
    epochs = [list(source.epoch_rows(7, epoch)) for epoch in (0, 1)]
    for epoch, rows in enumerate(epochs):
        assert sorted(map(repr, rows)) == sorted(map(repr, source.rows()))
        assert list(source.epoch_rows(7, epoch, 5)) == rows[5:]
    orders = [list(source.rows()), *epochs, list(source.epoch_rows(8, 0))]
    assert all(a != b for i, a in enumerate(orders) for b in orders[:i])


def test_file_epochs_are_seekable_permutations(tmp_path: Path) -> None:
    write_json(tmp_path / "rows.json", [{"problem": f"p{i}", "answer": i} for i in range(20)])
    assert_epochs_are_seekable_permutations(open_source(str(tmp_path / "rows.json")))


def test_hub_rows_and_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(hub_source(monkeypatch, RECORDS).rows()) == ROWS
    assert list(hub_source(monkeypatch, RECORDS).rows(2)) == ROWS[2:]
    monkeypatch.setattr(hub_module, "SHUFFLE_BUFFER", 6)
    source = hub_source(monkeypatch, [{"problem": f"p{i}", "answer": str(i)} for i in range(20)])
    assert_epochs_are_seekable_permutations(source)


def test_hub_refuses_a_missing_field_and_an_unknown_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match=r"data\.question_field='problem'.*'org/name@train'.*: answer, question"):
        hub_source(monkeypatch, [{"question": "what is 1", "answer": "1"}])

    def unknown(*_: object, **__: object) -> None:
        raise FileNotFoundError("no such data set")

    monkeypatch.setattr(datasets, "load_dataset", unknown)
    with pytest.raises(SettingError, match=r"data\.path='org/other@train'.*no such data set.*local file"):
        open_source("org/other")


@pytest.mark.parametrize(
    ("path", "asked", "shown"),
    [
        ("org/name", ("org/name", None, "test"), "hub:org/name@test"),
        ("org/name@dev", ("org/name", None, "dev"), "hub:org/name@dev"),
        ("org/name:algebra", ("org/name", "algebra", "test"), "hub:org/name:algebra@test"),
        ("org/name:algebra@train", ("org/name", "algebra", "train"), "hub:org/name:algebra@train"),
    ],
)
def test_hub_configuration_and_split(
    monkeypatch: pytest.MonkeyPatch, path: str, asked: tuple[str, str | None, str], shown: str
) -> None:
    calls: list[tuple[str, str | None, str]] = []

    def load_dataset(name: str, part: str | None, split: str, streaming: bool) -> datasets.IterableDataset:
        calls.append((name, part, split))
        return datasets.IterableDataset.from_generator(lambda: iter(RECORDS))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert open_source(path, "held_out").identity == shown
    assert calls == [asked]


def test_hendrycks_math_is_read_from_its_solutions(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"type": "Algebra", "level": "Level 2"}
    records = [
        fields | {"problem": "1 + 1?", "solution": "Not $\\boxed{1}$ but $\\boxed{2}$."},
        fields | {"problem": "2 + 2?", "solution": "Four.", "level": "Level ?"},
    ]
    stream = datasets.IterableDataset.from_generator(lambda: iter(records))
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: stream)
    source = open_source("org/math:default", fields=Fields(solution="solution", difficulty="level"))
    assert list(source.rows()) == [Problem(0, "1 + 1?", "2", 2.0), Excluded("no_box_in_solution")]


def test_shuffle_buffered_reads_no_more_than_its_buffer() -> None:
    taken: list[int] = []
    shuffled = shuffle_buffered((taken.append(i) or i for i in range(100)), Random(0), 10)  # type: ignore[func-returns-value]
    first = list(islice(shuffled, 5))
    assert len(taken) == 15
    assert max(first) < 15
    assert sorted(first + list(shuffled)) == list(range(100))


def test_demo_counts_through_its_problems() -> None:
    from ngrpo.data.word_problems.generator import problem

    source = open_source("demo", "held_out")
    assert isinstance(source, DemoSource)
    expected = [problem(key, "held_out") for key in range(4)]
    assert list(islice(source.rows(), 4)) == expected
    assert list(islice(source.epoch_rows(0, 0, 2), 2)) == expected[2:]
    assert source.identity != open_source("demo", "train").identity


@pytest.mark.parametrize("path", ["nowhere", "data/missing.json", "no/match/*.jsonl", "", [], ["demo"]])
def test_open_source_refuses_what_is_not_there(path: str | list[str]) -> None:
    with pytest.raises(SettingError, match=r"data\.eval_path=.*names no source; give 'demo'"):
        open_source(path, setting="data.eval_path")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.csv", "problem,answer\n", "unknown suffix; convert it to one of .json, .jsonl, .parquet"),
        ("rows.json", "[{]", "cannot be read .*fix"),
        ("rows.jsonl", '{"problem": "p", "answer": "1"}\n{"problem": }\n', "cannot be read .*line 2"),
        ("rows.parquet", "PAR", "cannot be read"),
        ("rows.json", '{"problem": "p", "answer": "1"}', "must hold a list of objects"),
        ("rows.json", '["p"]', "must hold a list of objects"),
        ("rows.json", "[]", "has no row"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(SettingError, match=message) as caught:
        open_source(str(tmp_path / name))
    assert "data.path=" in str(caught.value)
    assert name in str(caught.value)


def test_file_refuses_a_field_no_row_has(tmp_path: Path) -> None:
    write_json(tmp_path / "rows.json", [{"question": "q", "answer": "1"}])
    with pytest.raises(SettingError, match=r"data\.question_field='problem'.*rows\.json"):
        FileSource([tmp_path / "rows.json"])


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    write_jsonl(file, RECORDS)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert list(FileSource([file]).rows()) == ROWS


def test_what_is_no_ordinary_file_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "rows.json"
    os.mkfifo(pipe)
    with pytest.raises(SettingError, match="is no ordinary file; give a file"):
        FileSource([pipe])
    with pytest.raises(SettingError, match="is no ordinary file; give a file"):
        FileSource([Path("/dev/zero")])


@pytest.mark.parametrize("whole", [False, True])
def test_a_folder_of_save_to_disk_is_told_from_one_of_rows(whole: bool, tmp_path: Path) -> None:
    rows = datasets.Dataset.from_list([{"problem": "1 + 1", "answer": "2"}])
    saved = datasets.DatasetDict({"train": rows}) if whole else rows
    saved.save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(SettingError, match=r"^data\.path='.*saved' is of save_to_disk, .*to_parquet"):
        open_source(str(tmp_path / "saved"))


def test_a_folder_with_rows_in_its_folders_says_where(tmp_path: Path) -> None:
    (tmp_path / "set" / "data").mkdir(parents=True)
    write_jsonl(tmp_path / "set" / "data" / "train-00000.jsonl", RECORDS)
    pattern = re.escape(str(tmp_path / "set" / "data" / "*.jsonl"))
    with pytest.raises(SettingError, match=f"has no rows but in its folders; name them, such as '{pattern}'"):
        open_source(str(tmp_path / "set"))
    assert list(open_source(str(tmp_path / "set" / "data" / "*.jsonl")).rows()) == ROWS


NARROW = [(0.1, "0.1"), (2.5, "2.5"), (12345.678, "12345.678"), (None, None), (float("nan"), None), (1e-7, "1e-07")]


def test_narrow_floats_of_parquet_are_answers_as_they_were_written(tmp_path: Path) -> None:
    """In float64 the 0.1 of float32 is 0.10000000149011612, which no right answer equals."""
    file = tmp_path / "rows.parquet"
    answers = pa.array([value for value, _ in NARROW], pa.float32())
    pq.write_table(pa.table({"problem": [f"p{i}" for i in range(len(NARROW))], "answer": answers}), file)
    read = [row.answer if isinstance(row, Problem) else None for row in FileSource([file]).rows()]
    assert read == [answer for _, answer in NARROW]


def test_narrow_floats_of_the_hub_are_answers_as_they_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [value for value, _ in NARROW]
    records = [{"problem": f"p{i}", "answer": v and float(np.float32(v))} for i, v in enumerate(values)]
    features = datasets.Features({"problem": datasets.Value("string"), "answer": datasets.Value("float32")})
    source = hub_source(monkeypatch, records, features)
    read = [row.answer if isinstance(row, Problem) else None for row in source.rows()]
    assert read == [answer for _, answer in NARROW]


def test_deep_nesting_and_damaged_parquet_are_refused(tmp_path: Path) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(SettingError, match="is nested too deeply"):
        FileSource([deep])
    table = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"problem": ["1"] * 50, "answer": ["1"] * 50}), table)
    content = table.read_bytes()
    for damaged in (content[:40] + bytes(byte ^ 0x55 for byte in content[40:90]) + content[90:], content[:99]):
        table.write_bytes(damaged)
        with pytest.raises(SettingError, match="cannot be read"):
            FileSource([table])
