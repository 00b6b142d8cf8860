"""Python values as words of the command line: Hydra reads from each word the value that was given."""

from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from ngrpo.entrypoints.override_words import words_of
from ngrpo.errors import SettingError

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n")),
)


def read(word: str) -> Any:
    return OverridesParser.create().parse_override(word).value()


@given(st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=5))
def test_hydra_reads_what_was_given(value: Any) -> None:
    (word,) = words_of({"key": value})
    assert read(word) == value
    assert type(read(word)) is type(value)


@pytest.mark.parametrize(
    "text", ["null", "True", "1e5", "NaN", "a b", "it's", r"C:\folder\'x", "a\\", "a\\'", "", "ä=ö", "A²", "x٣"]
)
def test_texts_that_look_like_something_else_stay_texts(text: str) -> None:
    assert read(words_of({"key": text})[0]) == text


def test_presets_come_before_what_is_set_on_top_of_them() -> None:
    settings = {"trainer": {"optimizer": {"lr": 0.1}}, "exploration": {"rate": 0.2, "name": "neighbor"}, "n": 4}
    assert words_of(settings) == [
        "exploration=neighbor",
        "n=4",
        "exploration.rate=0.2",
        "trainer.optimizer.lr=0.1",
    ]


def test_paths_are_texts() -> None:
    assert words_of({"model": {"path": Path("/a b/c")}}) == ["model.path='/a b/c'"]


def test_one_sentence_for_what_no_setting_can_be() -> None:
    with pytest.raises(SettingError, match=r"^trainer\.iterations=.* is of type object, which no setting has; give "):
        words_of({"trainer": {"iterations": object()}})
