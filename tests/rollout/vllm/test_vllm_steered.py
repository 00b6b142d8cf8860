"""Tokens that requests ask for, and what is recorded of the distributions, inside vLLM: those of the torch engine."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from vllm_checks import (
    FORCED,
    MIXING,
    UNSTOPPED,
    asking,
    assert_same_rollouts,
    continued,
    count_preemptions,
    random_requests,
    replay_error,
    start_engine,
)

from ngrpo.exploration.min_p import MinPSampling
from ngrpo.types.rollouts import Request, Rollout
from ngrpo.types.support import NO_ID

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm

RECORDED = replace(UNSTOPPED, distributions=True)


def some_plain(requests: Sequence[Request]) -> list[Request]:
    return [replace(one, explore=n % 5 > 0) for n, one in enumerate(requests)]


@pytest.mark.parametrize("strategy", [MIXING, MinPSampling(0.02, largest_support=12)], ids=str)
def test_asked_tokens_and_records_are_those_of_the_torch_engine(
    engine, oracle, bound_to_demo, trainer, strategy
) -> None:
    bound, requests = bound_to_demo(strategy), some_plain(asking(random_requests(10, 5, 60, samples=2)))
    rollouts = engine.generate(requests, RECORDED, bound)
    assert_same_rollouts(rollouts, oracle.generate(requests, RECORDED, bound))
    assert replay_error(rollouts, strategy, RECORDED.temperature, trainer) < 1e-4
    drawn = 0
    for request, one in zip(requests, rollouts, strict=True):
        assert (int(one.response_ids[0]) == FORCED) == (request.forced_token is not None)
        mixed = set((one.mixture.positions - len(one.prompt_ids)).tolist())
        first = 0 if request.forced_token is None else 1
        agree = (one.distributions.ids[:, 0] == one.response_ids).tolist()
        others = sum(not agree[at] for at in range(first, one.length) if at not in mixed)
        assert others == 0 or not request.likeliest
        drawn += others
    assert drawn > 50


def test_nothing_is_recorded_and_no_row_is_steered_unless_it_is_asked_for(engine, bound_to_demo) -> None:
    bound, requests = bound_to_demo(MIXING), random_requests(6, 5, 60)
    plain = engine.generate(requests, UNSTOPPED, bound)
    assert all(one.distributions is None for one in plain)
    recorded = engine.generate(requests, RECORDED, bound)
    assert_same_rollouts([replace(one, distributions=None) for one in recorded], plain, atol=0.0)
    with engine.stream(UNSTOPPED, bound, at_once=2) as stream, pytest.raises(ValueError, match="ask for no tokens"):
        stream.add([replace(one, likeliest=True) for one in requests])


def test_prefixes_slots_that_are_filled_again_and_streams(engine, oracle, bound_to_demo) -> None:
    bound, requests = bound_to_demo(MIXING), some_plain(asking(random_requests(12, 20, 60)))
    whole = engine.generate(requests, RECORDED, bound)
    going_on = [
        replace(continued(one, 5 + n), forced_token=FORCED if n % 2 else None, likeliest=n % 3 > 0)
        for n, one in enumerate(whole)
        if one.length > 30
    ]
    expected = oracle.generate(going_on, RECORDED, bound)
    for slots in (None, 2):
        made = engine.generate(going_on, RECORDED, bound, slots=slots)
        assert_same_rollouts(made, expected)
    for n, one in enumerate(made):
        assert bool((one.distributions.ids[: one.prefix_length] == NO_ID).all())
        assert (int(one.response_ids[one.prefix_length]) == FORCED) == (n % 2 > 0) or not n % 2
    streamed: dict[int, Rollout] = {}
    with engine.serving_stream(RECORDED, bound, plain=True, steered=True) as stream:
        stream.add(requests[:5])
        stream.add(requests[5:], watched=True)
        while stream.unfinished:
            finished = stream.wait()
            streamed.update(zip(finished, stream.rollouts(finished), strict=True))
    assert_same_rollouts([streamed[number] for number in range(len(requests))], whole)


def test_preempted_rollouts_are_recomputed_with_what_was_asked_for(demo, oracle, mixing) -> None:
    engine = start_engine(demo, num_gpu_blocks_override=12)
    preempted, requests = count_preemptions(engine), asking(random_requests(10, 20, 60, samples=2))
    rollouts = engine.generate(requests, RECORDED, mixing)
    engine.close()
    assert len(preempted) >= 3
    assert_same_rollouts(rollouts, oracle.generate(requests, RECORDED, mixing))
