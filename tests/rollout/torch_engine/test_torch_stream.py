"""A stream of requests from many askers makes the rollouts of one call, whatever comes, grows or goes meanwhile."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from made_rollouts import same_distributions

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.soft import SoftThinking
from ngrpo.rollout.engine import ServingEngine
from ngrpo.types.rollouts import Rollout

STRATEGIES: list[Exploration] = [NeighborMixing(rate=0.4), GaussianSoftTokens(), SoftThinking()]


def same(one: Rollout, other: Rollout) -> bool:
    close = torch.allclose(one.log_probs, other.log_probs, rtol=1e-4, atol=1e-4)  # densities are large
    close = close and same_distributions(one, other, atol=1e-3)
    return close and one.response_ids.equal(other.response_ids) and one.mixture.positions.equal(other.mixture.positions)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: type(one).__name__)
def test_requests_that_come_one_by_one_are_those_of_one_call(
    strategy: Exploration, make_engine: Any, bound: Any, requests: Any, sampling: Any
) -> None:
    """The batch and its cache begin with room for one; the later requests are longer.

    Some ask for tokens, but for those of the strategy whose visible token is a shadow, the larger of near equals.
    """
    engine = make_engine(max_batch_size=4)
    engine.lm.double()  # in which no rounding grows to another token
    assert isinstance(engine, ServingEngine)
    exploration = bound(engine, strategy)
    steered = strategy.sums_rows
    sampling = replace(sampling, distributions=steered)
    asked = [
        replace(
            one,
            max_new_tokens=3 + 2 * number,
            likeliest=steered and number % 3 == 1,
            forced_token=9 if steered and number % 5 == 1 else None,
        )
        for number, one in enumerate(requests)
    ]
    expected = engine.generate(asked, sampling, exploration)
    assert all(one.length <= 3 + 2 * number for number, one in enumerate(expected))
    made: dict[int, Rollout] = {}
    with engine.serving_stream(sampling, exploration, plain=False, steered=steered) as stream:
        for one in asked:
            stream.add([one])
            finished = stream.wait()
            made.update(zip(finished, stream.rollouts(finished), strict=True))
        while stream.unfinished:
            finished = stream.wait()
            made.update(zip(finished, stream.rollouts(finished), strict=True))
    for number, one in enumerate(expected):
        if not steered:
            one = replace(one, response_ids=made[number].response_ids)
        assert same(made[number], one), number


def test_what_is_withdrawn_or_ended_leaves_the_others_as_they_are(
    make_engine: Any, bound: Any, requests: Any, sampling: Any
) -> None:
    engine = make_engine(max_batch_size=3)
    exploration = bound(engine, NeighborMixing(rate=0.4))
    long = replace(sampling, stop_ids=())
    expected = engine.generate(requests, long, exploration)
    made: dict[int, Rollout] = {}
    told: dict[int, list[int]] = {}
    with engine.serving_stream(long, exploration, plain=False) as stream:
        stream.add(requests, watched=True)
        for turn in range(10_000):
            if not stream.unfinished:
                break
            if turn == 3:  # one that runs, one that waits, one that there is not
                stream.withdraw([0, len(requests) - 1, 99])
            if turn == 5:
                stream.end([1])
            finished = stream.wait()
            for number, tokens in stream.news().items():
                told.setdefault(number, []).extend(tokens)
            made.update(zip(finished, stream.rollouts(finished), strict=True))
        assert (stream._requests, stream._seen, stream._collected, stream._withdrawn) == ({}, {}, {}, set())
    assert set(made) == set(range(len(requests))) - {0, len(requests) - 1}
    assert 0 < made[1].length < expected[1].length
    assert made[1].response_ids.equal(expected[1].response_ids[: made[1].length])
    for number in set(made) - {1}:
        assert same(made[number], expected[number])
        assert told[number] == expected[number].response_ids.tolist()[: len(told[number])]
        assert len(told[number]) > 0


def test_all_rows_may_be_withdrawn_at_once(make_engine: Any, bound: Any, requests: Any, sampling: Any) -> None:
    engine = make_engine()
    exploration = bound(engine, NeighborMixing())
    with engine.serving_stream(sampling, exploration, plain=False) as stream:
        stream.add(requests)
        stream.wait()
        stream.withdraw(range(len(requests)))
        while stream.unfinished:
            assert stream.wait() == []
        stream.add(requests[:1])
        finished: list[int] = []
        while stream.unfinished:
            finished += stream.wait()
        assert finished == [len(requests)]
