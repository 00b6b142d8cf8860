"""The soft overlong punishment against its golden vector and written out."""

import json

import pytest
import torch
from made_responses import responses
from places import ROOT

from ngrpo.errors import SettingError
from ngrpo.rewards.terms.overlong import OverlongPunishment, overlong_punishment

GOLDEN = json.loads((ROOT / "tests/vectors.json").read_text())["dapo_overlong"]


def test_golden_vector():
    expected = {int(length): value for length, value in GOLDEN["outputs"].items()}
    limit, cache = GOLDEN["inputs"]["L_max"], GOLDEN["inputs"]["L_cache"]
    found = overlong_punishment(torch.tensor(list(expected)), limit, cache)
    assert found.tolist() == list(expected.values())
    assert found.dtype == torch.float32


def by_cases(length: int, limit: int, cache: int) -> float:
    if length <= limit - cache:
        return 0.0
    return (limit - cache - length) / cache if length <= limit else -1.0


@pytest.mark.parametrize(("limit", "cache"), [(10, 4), (10, 10), (10, 1), (1, 1)])
def test_every_length(limit: int, cache: int):
    lengths = list(range(1, 15))
    found = overlong_punishment(torch.tensor(lengths), limit, cache).tolist()
    assert found == pytest.approx([by_cases(length, limit, cache) for length in lengths])


def test_the_term_reads_response_lengths():
    seen = responses([None] * 4, lengths=[5, 6, 8, 10])
    assert OverlongPunishment(limit=10, cache=4)(seen).tolist() == [0.0, 0.0, -0.5, -1.0]


@pytest.mark.parametrize("cache", [0, 11])
def test_a_cache_that_does_not_fit_is_refused(cache: int):
    with pytest.raises(SettingError, match=rf"cache={cache} .*rollout\.max_new_tokens=10"):
        OverlongPunishment(limit=10, cache=cache)
