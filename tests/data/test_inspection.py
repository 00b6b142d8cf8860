"""The table of a data set: counts, doubles, overlap, lengths, difficulties."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_tokenizer import tiny_tokenizer

from ngrpo.data.datamodule import PromptDataModule
from ngrpo.data.inspection import ENDLESS_ROWS, Double, histogram, inspect, quantiles

TRAIN = [
    {"problem": "what is 1", "answer": "1", "difficulty": 1},
    {"problem": "what is 2", "answer": "2", "difficulty": 2},
    {"problem": "What is  1?", "answer": "one", "difficulty": 1},
    {"problem": "what is 3", "answer": "3", "difficulty": 3},
    {"problem": ["what is 3"], "answer": "3", "difficulty": 3},
    {"problem": "what is 4 plus 5 plus 6 plus 7", "answer": "22"},
    {"answer": "3", "difficulty": 3},
]
TEST = [{"problem": "what is 9", "answer": "9"}, {"problem": "what is 3", "answer": "3.0"}]


def write(file: Path, rows: list[dict[str, Any]]) -> str:
    file.write_text(json.dumps(rows))
    return str(file)


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    return {
        "tokenizer": tiny_tokenizer(None), "prompts_per_batch": 1, "seed": 0, "instruction": "",
        "path": write(tmp_path / "train.json", TRAIN), "eval_path": write(tmp_path / "test.json", TEST),
        "max_prompt_tokens": 6,
    }  # fmt: skip


@pytest.mark.parametrize("kept", [False, True])
def test_everything_is_counted_whether_doubles_are_kept_or_not(settings: dict[str, Any], kept: bool) -> None:
    (found,) = inspect(PromptDataModule(**settings, drop_duplicates=not kept, drop_eval_overlap=not kept)).values()
    excluded = {"question_not_text": 1, "missing_question": 1, "prompt_too_long": 1}
    assert found.excluded == excluded | ({} if kept else {"duplicate": 1, "in_evaluation": 1})
    assert (found.rows, found.usable) == (7, 4 if kept else 2)
    assert found.rows == found.usable + sum(found.excluded.values())
    assert found.duplicates == [Double(2, "data row 0", "What is  1?", same_answer=False)]
    assert found.overlap == [Double(3, "evaluation row 1", "what is 3", same_answer=True)]
    assert found.difficulties == {"1": 2, "2": 1, "3": 1, "none": 1}
    assert found.prompt_tokens["0%"] == found.prompt_tokens["100%"] == 4  # a BOS and three words


def test_sources_of_a_mixture_are_compared_with_each_other(settings: dict[str, Any], tmp_path: Path) -> None:
    other = write(tmp_path / "other.json", TRAIN[:2])
    sources = {"one": {"path": settings["path"]}, "two": {"path": other}}
    mixed = PromptDataModule(**settings | {"path": None, "eval_path": None}, drop_duplicates=False, sources=sources)
    found = inspect(mixed)
    assert list(found) == ["data.sources.one", "data.sources.two"]
    assert [double.of for double in found["data.sources.two"].duplicates] == [
        "data.sources.one row 0", "data.sources.one row 1"
    ]  # fmt: skip
    assert found["data.sources.two"].overlap == []


def test_what_never_ends_is_looked_at_in_part(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert ENDLESS_ROWS > 1000
    monkeypatch.setattr("ngrpo.data.inspection.ENDLESS_ROWS", 30)
    endless = PromptDataModule(**settings | {"path": "demo", "eval_path": None, "max_prompt_tokens": 100})
    assert inspect(endless)["data"].rows == 30
    assert inspect(endless, rows=7)["data"].rows == 7
    assert inspect(PromptDataModule(**settings), rows=3)["data"].rows == 3


def test_quantiles_are_lengths_that_occur() -> None:
    found = quantiles([10, 1, 3])
    assert (found["0%"], found["50%"], found["75%"], found["100%"]) == (1, 3, 10, 10)
    assert quantiles([]) == {}


def test_many_difficulties_are_counted_in_ten_intervals() -> None:
    assert histogram([2.0, 1.5, None, 2.0]) == {"1.5": 1, "2": 2, "none": 1}
    assert histogram([]) == {}
    wide = histogram([float(value) for value in range(101)])
    assert list(wide.values()) == [10] * 9 + [11]
    assert list(wide)[0] == "0 to 10"
    assert len(histogram([float(value) for value in range(20)])) == 20
