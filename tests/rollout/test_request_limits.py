"""Requests that would have to be cut are refused in one sentence."""

import re
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.soft import SoftThinking
from ngrpo.exploration.token import TokenSampling
from ngrpo.rollout.request_limits import check_requests
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Prefix, Request, Sampling

SAMPLING = Sampling(1.0, 8, stop_ids=(0,))
STRATEGY = NeighborMixing(k=3)
SOUND = Request((5, 6, 7), 1)


def mixed_at(*positions: int, token: int = 0) -> Mixture:
    shape = (len(positions), STRATEGY.width)
    record = Record(torch.full(shape, token, dtype=torch.int32), torch.zeros(shape))
    return Mixture(torch.tensor(positions, dtype=torch.int64), record)


def check(*requests: Request, sampling: Sampling = SAMPLING, strategy: Exploration = STRATEGY) -> None:
    check_requests(requests, sampling, strategy, (50, 8), max_tokens=11)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"prompt_ids": ()}, "request 1 has an empty prompt"),
        ({"prompt_ids": (1,) * 4}, "request 1 has 4 prompt tokens, which with max_new_tokens=8 are more than the 11"),
        ({"prompt_ids": (1, 50)}, "request 1 has token 50, .* vocabulary of 50"),
        ({"prompt_ids": (1, -1)}, "request 1 has token -1, .* vocabulary of 50"),
        ({"prefix": Prefix((3, 50))}, "request 1 has token 50, .* vocabulary of 50"),
        ({"prefix": Prefix((1,) * 8)}, "request 1 has a prefix of 8 tokens, which leaves none of max_new_tokens=8"),
        ({"prefix": Prefix((3, 0))}, "request 1 has a prefix with the stop token 0, after which nothing follows"),
        ({"prefix": Prefix((1, 2), mixed_at(3, token=50))}, "request 1 has a prefix that mixes an id outside of .* 50"),
        ({"key": 2**63}, "request 1 has key=9223372036854775808, which is no number of 63 bits"),
        ({"key": -1}, "request 1 has key=-1, which is no number of 63 bits"),
    ],
)
def test_what_cannot_be_served_as_it_is(broken: dict[str, object], said: str) -> None:
    with pytest.raises(SettingError, match=said) as caught:
        check(SOUND, replace(SOUND, **broken))  # type: ignore[arg-type]
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"stop_ids": (0, 50)}, "stop token 50 is no id of the model's vocabulary of 50"),
        ({"temperature": 0.0}, r"temperature=0\.0 cannot divide logits"),
        ({"temperature": -1.0}, r"temperature=-1\.0 cannot divide logits"),
        ({"temperature": float("nan")}, "temperature=nan cannot divide logits"),
        ({"temperature": float("inf")}, "temperature=inf cannot divide logits"),
        ({"max_new_tokens": 11}, "max_new_tokens=11 leaves no room for a prompt in the 11 tokens"),
    ],
)
def test_settings_with_which_nothing_can_be_served(broken: dict[str, object], said: str) -> None:
    """Also where each request has a smaller budget of its own: there are records for that of the call."""
    with pytest.raises(SettingError, match=said):
        check(replace(SOUND, max_new_tokens=2), sampling=replace(SAMPLING, **broken))  # type: ignore[arg-type]


def test_all_up_to_the_limits_is_taken() -> None:
    """Among it a prefix without mixtures, which every strategy can go on from."""
    check(replace(SOUND, prefix=Prefix((1,), mixed_at())), strategy=TokenSampling())
    longest = Prefix((49,) * 7, mixed_at(3, 9))
    check(SOUND, replace(SOUND, prefix=longest), replace(SOUND, prefix=Prefix((1,), mixed_at(3))))


@pytest.mark.parametrize("strategy", [NeighborMixing(k=2), GaussianSoftTokens(), TokenSampling()])
def test_the_record_of_another_strategy(strategy: Exploration) -> None:
    said = (
        f"request 1 has a prefix whose mixtures have ids [1, 3], weights [1, 3], and {type(strategy).__name__} records"
    )
    with pytest.raises(SettingError, match=re.escape(said)):
        check(SOUND, replace(SOUND, prefix=Prefix((1,), mixed_at(3))), strategy=strategy)


def test_vectors_of_another_model() -> None:
    none = torch.zeros(1, 0)
    record = Record(none.int(), none, vector=torch.zeros(1, 7), noise=torch.ones(1))
    prefix = Prefix((9,), Mixture(torch.tensor([3]), record))
    with pytest.raises(SettingError, match=r"vector \[1, 7\], noise \[1\], and GaussianSoftTokens records others"):
        check(replace(SOUND, prefix=prefix), strategy=GaussianSoftTokens())


@pytest.mark.parametrize(
    ("channel", "broken", "said"),
    [
        ("weights", torch.ones(1, 1), r"weights \[1, 1\], and NeighborMixing records others"),  # would be broadcast
        ("weights", torch.ones(1, 2), r"weights \[1, 2\], and NeighborMixing records others"),
        ("weights", torch.full((1, 3), float("nan")), "whose mixtures have weights that are not finite"),
        ("ids", torch.ones(3, dtype=torch.int32).view(1, 3, 1), r"ids \[1, 3, 1\]"),
        ("ids", torch.full((1, 3), 1.5), "that mixes an id outside of the model's vocabulary"),
        ("noise", torch.ones(1), r"noise \[1\], and NeighborMixing records others"),
    ],
)
def test_a_damaged_record(channel: str, broken: Tensor, said: str) -> None:
    record = mixed_at(3).record._replace(**{channel: broken})
    with pytest.raises(SettingError, match=said):
        check(replace(SOUND, prefix=Prefix((1,), Mixture(torch.tensor([3]), record))))


def test_a_strategy_with_a_state_needs_what_a_prefix_does_not_hold() -> None:
    given = replace(SOUND, prefix=Prefix((1,)))
    with pytest.raises(SettingError, match="SoftThinking needs at each step what it kept of the step before"):
        check(given, strategy=SoftThinking())
    check(replace(given, explore=False), strategy=SoftThinking())


@pytest.mark.parametrize("broken", [{"prompt_ids": ()}, {"prompt_ids": (64,)}, {"prefix": Prefix((9,) * 8)}])
def test_the_torch_engine_refuses_it(make_engine, bound, broken: dict[str, object]) -> None:
    engine = make_engine()
    with pytest.raises(SettingError, match="request 1 has"):
        engine.generate([SOUND, replace(SOUND, **broken)], SAMPLING, bound(engine, STRATEGY))  # type: ignore[arg-type]
