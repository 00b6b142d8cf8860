"""Text is given out as its tokens come: together it is the whole text, and nothing is taken back."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngrpo.modeling.loading import ModelSource
from ngrpo.serving.growing_text import GrowingText, stop_at, tokens_up_to_stop


def of_bytes(ids: list[int]) -> str:
    """The text of tokens that are a byte each."""
    return bytes(ids).decode(errors="replace")


def spaced(ids: list[int]) -> str:
    """The text of tokens that are words, without the space before the first, as sentencepiece writes them."""
    return " ".join(map(str, ids))


def grown(decode, ids, cuts, stops=()):  # type: ignore[no-untyped-def]
    """Returns the pieces of a text whose tokens come in runs that end at ``cuts``, and the last one."""
    growing = GrowingText(decode, stops)
    bounds = [0, *sorted(set(cuts)), len(ids)]
    pieces = [growing.add(ids[low:high]) for low, high in zip(bounds, bounds[1:], strict=False)]
    return [*pieces, growing.end(decode(ids))], growing


@given(text=st.text(alphabet="aé€😀\n ", max_size=30), seed=st.integers(0, 99))
def test_together_they_are_the_whole(text: str, seed: int) -> None:
    ids = list(text.encode())
    cuts = random.Random(seed).sample(range(len(ids) + 1), k=len(ids) // 2)
    pieces, _ = grown(of_bytes, ids, cuts)
    assert "".join(pieces) == text


@given(ids=st.lists(st.integers(0, 255), max_size=200), seed=st.integers(0, 9))
def test_bytes_that_are_no_text_come_to_the_same_too(ids: list[int], seed: int) -> None:
    cuts = random.Random(seed).sample(range(len(ids) + 1), k=len(ids) // 3)
    pieces, _ = grown(of_bytes, ids, cuts)
    assert "".join(pieces) == of_bytes(ids) or len(ids) > 64


def test_words_keep_the_spaces_between_them() -> None:
    pieces, _ = grown(spaced, [10, 20, 30, 40], [1, 2, 3])
    assert pieces == ["10", " 20", " 30", " 40", ""]


def test_half_of_a_character_is_held_back() -> None:
    growing = GrowingText(of_bytes)
    assert [growing.add([one]) for one in "a€b".encode()] == ["a", "", "", "€", "b"]


@given(text=st.text(alphabet="abc", max_size=20), stops=st.lists(st.text("abc", min_size=1, max_size=3), max_size=3))
def test_the_text_ends_before_the_first_stop_however_it_comes(text: str, stops: list[str]) -> None:
    at = stop_at(text, stops)
    for cuts in (range(1, len(text)), range(1, len(text), 3), ()):
        pieces, growing = grown(of_bytes, list(text.encode()), cuts, stops)
        assert "".join(pieces) == (text if at is None else text[:at])
        assert growing.stopped is (at is not None)


@pytest.mark.parametrize(
    ("text", "stops", "count"),
    [("one two three", ["two", "three"], 7), ("one", ["x"], 3), ("aaa", ["aa"], 2), ("", ["a"], 0)],
)
def test_tokens_are_counted_up_to_the_one_that_completes_the_stop(text: str, stops: list[str], count: int) -> None:
    assert tokens_up_to_stop(of_bytes, list(text.encode()), stops) == count


def test_the_demos_tokenizer_grows_to_what_it_decodes_at_once() -> None:
    tokenizer = ModelSource().tokenizer()
    ids = tokenizer("Tom has 3 apples.\nHe buys 4 more, and then? <b>é</b>")["input_ids"]

    def decode(some: list[int]) -> str:
        return str(tokenizer.decode(some, clean_up_tokenization_spaces=False))

    pieces, _ = grown(decode, ids, range(1, len(ids)))
    assert "".join(pieces) == decode(ids)
