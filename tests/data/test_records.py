"""A data source of the user's: its rows are read by number, and what has none is refused."""

from collections.abc import Iterator
from typing import Any

import pytest
from made_sources import MadeSource

from ngrpo.data.sources import Fields, FileSource, RecordSource, open_source
from ngrpo.errors import SettingError
from ngrpo.types.problems import Excluded, Problem

ROWS = [{"problem": f"{i} + 1?", "answer": i + 1, "level": i} for i in range(5)]


class Numbered:
    def __init__(self, rows: list[Any]) -> None:
        self.made = rows

    def __len__(self) -> int:
        return len(self.made)

    def __getitem__(self, index: int) -> Any:
        return self.made[index]


class Unbounded(MadeSource):
    in_memory = False


def test_rows_are_those_of_a_file_with_the_same_records(tmp_path) -> None:
    import json

    file = tmp_path / "rows.json"
    file.write_text(json.dumps([*ROWS, {"problem": "lost", "answer": None, "level": 9}]))
    fields = Fields(keep=("level",))
    own = RecordSource(Numbered([*ROWS, {"problem": "lost", "level": 9}]), fields)
    there = FileSource([file], fields)
    assert list(own.rows()) == list(there.rows())
    assert list(own.rows())[5] == Excluded("missing_answer")
    assert list(own.epoch_rows(3, 1, 2)) == list(there.epoch_rows(3, 1, 2))
    assert next(own.rows()) == Problem(0, "0 + 1?", "1", columns={"level": 0})


def test_identity_is_that_of_the_rows() -> None:
    same, other = RecordSource(Numbered(list(ROWS))), RecordSource(Numbered(ROWS[::-1]))
    assert same.identity == RecordSource(Numbered(ROWS)).identity
    assert same.identity.startswith("Numbered@sha256:")
    assert other.identity != same.identity


@pytest.mark.parametrize("made", [ROWS, tuple(ROWS), Numbered(ROWS)])
def test_lists_and_objects_are_opened(made: Any) -> None:
    assert len(list(open_source(made).rows())) == 5


def test_a_source_of_problems_is_taken_as_it_is() -> None:
    made = Unbounded([Problem(0, "2?", "2")])
    assert open_source(made) is made
    sentence = r"^data.keep_fields=\['level'\] is for records, and data.path=Unbounded makes problems; take it out"
    with pytest.raises(SettingError, match=sentence):
        open_source(made, fields=Fields(keep=("level",)))


def rows() -> Iterator[dict[str, Any]]:
    yield from ROWS


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (rows(), r"^data.path is a generator, which has no rows by number; give an object with __len__ and"),
        (iter(ROWS), r"^data.path is a list_iterator, which has no rows by number"),
        (
            {"train": ROWS, "test": ROWS},
            r"^data.path is a mapping with train, test, which has no rows by number; give one",
        ),
        ({}, r"^data.path is a mapping with no keys, which has no rows by number"),
        (7, r"^data.path is a int, which has no rows"),
        (Numbered([]), r"^data.path=Numbered has no row; give one with problems"),
        (Numbered([("1 + 1?", "2")]), r"^data.path=Numbered has tuple for row 0; let it return a dictionary of fields"),
        (Numbered([None]), r"^data.path=Numbered has NoneType for row 0"),
        (Numbered([{"question": "?"}]), r"^data.question_field='problem' is no field of data.path=Numbered; set it to"),
    ],
)
def test_what_has_no_usable_rows_is_refused(made: Any, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        open_source(made)


def test_an_exception_of_its_own_passes() -> None:
    class Broken(Numbered):
        def __getitem__(self, index: int) -> Any:
            raise KeyError("a typing error of the author")

    with pytest.raises(KeyError, match="typing error"):
        open_source(Broken(ROWS))
