"""The strategies that another framework is refused."""

import pytest

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.plugins.strategies import check_replayed_by_records, check_scored_by_token


class Detached(NeighborMixing):
    detached = True


class PlainReference(NeighborMixing):
    plain_reference = True


@pytest.mark.parametrize("strategy", [TokenSampling(), NeighborMixing(k=2), NeighborMixing(k=2, rate=0.3)], ids=repr)
def test_sums_of_rows_that_are_scored_by_token_pass(strategy: Exploration):
    check_scored_by_token(strategy, "verl")
    check_replayed_by_records(strategy, "verl")


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        (GaussianSoftTokens(), "is scored by a density, and verl scores tokens"),
        (GumbelSoftThinking(), "is scored by a density"),
        (HybridReasoning(), "learns parameters, which verl does not train"),
        (MinPSampling(), "truncates the softmax, which verl scores in full"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_is_scored_otherwise_is_refused(strategy: Exploration, why: str):
    with pytest.raises(SettingError, match=f"exploration={type(strategy).__name__} {why}"):
        check_scored_by_token(strategy, "verl")


@pytest.mark.parametrize("strategy", [HybridReasoning(), Detached(), PlainReference()], ids=lambda s: type(s).__name__)
def test_what_records_alone_do_not_replay_is_refused(strategy: Exploration):
    with pytest.raises(SettingError, match="which verl is not told; use one that is scored by token"):
        check_replayed_by_records(strategy, "verl")
