"""Prefixes that a strategy cannot go on from are refused before anything is generated."""

from dataclasses import replace

import pytest
import torch

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.soft import SoftThinking
from ngrpo.exploration.token import TokenSampling
from ngrpo.rollout.prefix_limits import check_prefixes
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Prefix, Request, Sampling

V, D = 64, 8
SAMPLING = Sampling(1.0, max_new_tokens=4, stop_ids=(3,))
MIXED = Mixture(torch.tensor([2]), Record(torch.tensor([[7, 8]], dtype=torch.int32), torch.tensor([[0.75, 0.25]])))


def check(prefix: Prefix | None, strategy: Exploration, explore: bool = True) -> None:
    good = Request((4, 5), 1)
    check_prefixes([good, Request((4, 5), 2, explore, prefix)], SAMPLING, strategy, (V, D))


@pytest.mark.parametrize("mixture", [None, MIXED])
def test_what_the_strategy_recorded_is_taken(mixture: Mixture | None) -> None:
    check(Prefix((9, 10, 11), mixture), NeighborMixing(k=2))


def test_a_record_of_no_position_fits_every_strategy() -> None:
    none = Mixture(MIXED.positions[:0], MIXED.record.map(lambda channel: channel[:0]))
    check(Prefix((9,), none), TokenSampling())


REFUSED = {
    "no token is left": (
        Prefix((9, 10, 11, 12)),
        "request 1 has a prefix of 4 tokens.*max_new_tokens=4 and leave none",
    ),
    "no id": (Prefix((9, 64)), "request 1 has a prefix with token 64, which is no id of the model's vocabulary of 64"),
    "a negative id": (Prefix((-1,)), "request 1 has a prefix with token -1"),
    "a stop token": (Prefix((9, 3)), "request 1 has a prefix with the stop token 3, after which nothing follows"),
    "an id of another model": (
        Prefix((9,), replace(MIXED, record=MIXED.record._replace(ids=MIXED.record.ids + V))),
        "request 1 has a prefix that mixes an id outside of the model's vocabulary of 64",
    ),
}


@pytest.mark.parametrize(("prefix", "message"), REFUSED.values(), ids=REFUSED)
def test_tokens_that_cannot_be_gone_on_from_are_refused(prefix: Prefix, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        check(prefix, NeighborMixing(k=2))


@pytest.mark.parametrize("strategy", [NeighborMixing(k=3), GaussianSoftTokens(), TokenSampling()])
def test_the_record_of_another_strategy_is_refused(strategy: Exploration) -> None:
    message = f"request 1 has a prefix whose mixtures have 2 ids each, and {type(strategy).__name__} records others"
    with pytest.raises(SettingError, match=message):
        check(Prefix((9,), MIXED), strategy)


def test_vectors_of_another_width_are_refused() -> None:
    record = Record(
        torch.zeros(1, 0, dtype=torch.int32), torch.zeros(1, 0), vector=torch.zeros(1, 7), noise=torch.ones(1)
    )
    with pytest.raises(SettingError, match="0 ids each and vector, noise"):
        check(Prefix((9,), Mixture(torch.tensor([2]), record)), GaussianSoftTokens())


def test_a_strategy_with_a_state_is_refused_unless_the_request_does_not_explore() -> None:
    with pytest.raises(SettingError, match="SoftThinking needs at each step what it kept of the step before"):
        check(Prefix((9,)), SoftThinking())
    check(Prefix((9,)), SoftThinking(), explore=False)


def test_the_engine_refuses_it(make_engine, bound) -> None:
    engine = make_engine()
    with pytest.raises(SettingError, match="request 0 has a prefix of 4 tokens"):
        engine.generate([Request((7,), 1, prefix=Prefix((9, 9, 9, 9)))], SAMPLING, bound(engine, TokenSampling()))
