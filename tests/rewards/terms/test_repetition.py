"""The punishment of repetition, against counting by hand."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_responses import responses

from ngrpo.errors import SettingError
from ngrpo.rewards.terms.repetition import RepetitionPunishment, repeated_share


@pytest.mark.parametrize(
    ("ids", "n", "share"),
    [
        ([1, 2, 3, 4], 2, 0.0),
        ([1, 2, 1, 2], 2, 1 / 3),  # 12 21 12
        ([1, 1, 1, 1], 2, 2 / 3),
        ([1, 1, 1, 1], 1, 3 / 4),
        ([1, 2, 3, 1, 2, 3, 1, 2, 3], 3, 4 / 7),
        ([1, 2], 3, 0.0),
        ([1, 2, 3], 3, 0.0),
        ([], 1, 0.0),
    ],
)
def test_by_hand(ids: list[int], n: int, share: float):
    assert repeated_share(torch.tensor(ids, dtype=torch.int64), n) == pytest.approx(share)


@given(st.lists(st.integers(0, 2), max_size=16), st.integers(1, 9))
def test_is_the_share_of_places_that_say_what_was_said(ids: list[int], n: int):
    places = range(len(ids) - n + 1)
    again = [any(ids[i : i + n] == ids[j : j + n] for j in range(i)) for i in places]
    assert repeated_share(torch.tensor(ids, dtype=torch.int64), n) == pytest.approx(sum(again) / max(len(again), 1))


def test_long_n_grams_need_no_more_memory():
    """Each n-gram as a tuple took 4 GB here."""
    ids = torch.arange(32_768)
    assert repeated_share(ids, 16_384) == 0.0
    assert repeated_share(ids % 4_096, 16_384) == pytest.approx(1 - 4_096 / 16_385)


def test_the_term_reads_the_tokens_of_each_response():
    made = responses([None] * 2, lengths=[4, 4])
    looped = replace(made.rollouts[1], response_ids=torch.tensor([1, 2, 1, 2]))
    values = RepetitionPunishment(n=2)(replace(made, rollouts=[made.rollouts[0], looped]))
    assert values.tolist() == pytest.approx([0.0, -1 / 3])
    assert values.dtype == torch.float32


def test_n_must_be_positive():
    with pytest.raises(SettingError, match=r"repetition\.term\.n=0"):
        RepetitionPunishment(n=0)
