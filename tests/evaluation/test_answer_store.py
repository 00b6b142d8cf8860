from pathlib import Path
from typing import Any

import pytest
from made_answers import row, table

from ngrpo.errors import SettingError
from ngrpo.evaluation.answer_store import AnswerStore, stored_benchmarks

SETTINGS = {"n": 2, "seed": 0, "reward": {"timeout_s": 5.0}}


def test_what_was_added_is_there_by_problem_and_sample(tmp_path: Path) -> None:
    store = AnswerStore(tmp_path / "amc23")
    store.open(SETTINGS)
    assert store.finished() == set()
    assert store.table().num_rows == 0
    store.add(table([row(5, 0), row(5, 1), row(9, 0), row(9, 1)]))
    store.add(table([row(2, 0), row(2, 1, None)]))
    assert store.finished() == {2, 5, 9}
    kept = store.table().to_pylist()
    assert [(r["problem"], r["sample"]) for r in kept] == [(p, s) for p in (2, 5, 9) for s in (0, 1)]
    assert kept[1] == row(2, 1, None)
    assert stored_benchmarks(tmp_path)["amc23"].table().equals(store.table())


def test_half_written_shards_do_not_count(tmp_path: Path) -> None:
    store = AnswerStore(tmp_path / "amc23")
    store.open(SETTINGS)
    store.add(table([row(0, 0), row(0, 1)]))
    whole = next((tmp_path / "amc23" / "answers").iterdir())
    (whole.parent / "from-0000001.parquet.tmp").write_bytes(whole.read_bytes()[:40])
    assert store.finished() == {0}
    store.add(table([row(1, 0), row(1, 1)]))
    assert store.finished() == {0, 1}
    assert sorted(path.suffix for path in whole.parent.iterdir()) == [".parquet", ".parquet"]


def test_equal_settings_go_on_and_others_are_refused(tmp_path: Path) -> None:
    AnswerStore(tmp_path / "run" / "amc23").open(SETTINGS)
    AnswerStore(tmp_path / "run" / "amc23").open(dict(SETTINGS))
    changes: list[tuple[str, dict[str, Any]]] = [
        ("n", {"n": 4}),
        (r"reward\.timeout_s", {"reward": {"timeout_s": 1.0}}),
        ("extra", {"extra": 1}),
    ]
    for name, change in changes:
        with pytest.raises(SettingError, match=rf"run holds answers to amc23 made with {name}=.* now it is"):
            AnswerStore(tmp_path / "run" / "amc23").open(SETTINGS | change)
    assert AnswerStore(tmp_path / "run" / "amc23").settings() == SETTINGS


def test_a_folder_without_answers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="holds no stored answers"):
        stored_benchmarks(tmp_path)


def test_answers_that_are_there_twice_are_refused(tmp_path: Path) -> None:
    store = AnswerStore(tmp_path / "amc23")
    store.open(SETTINGS)
    store.add(table([row(5, 0), row(6, 0)]))
    store.add(table([row(6, 0)]))
    with pytest.raises(RuntimeError, match="holds answers twice"):
        store.table()
