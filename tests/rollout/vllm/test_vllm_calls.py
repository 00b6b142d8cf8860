"""Several callers, few slots and given prefixes on one engine."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
from vllm_checks import (
    MIXING,
    UNSTOPPED,
    FailsLater,
    as_one_piece,
    assert_same_rollouts,
    continued,
    count_preemptions,
    greedy_beside,
    mixed_total,
    random_requests,
    replay_error,
    start_engine,
)

from ngrpo.errors import SettingError
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.runtime.strategy_errors import StrategyError
from ngrpo.exploration.token import TokenSampling
from ngrpo.rollout.vllm.rollout_stream import VllmStream, slots_for
from ngrpo.types.rollouts import Prefix, Request, Rollout

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm

WAIT_S = 120.0
USES: list[Callable[[Any, list[Request], Any], Any]] = [
    lambda engine, requests, mixing: engine.generate(requests, UNSTOPPED, mixing),
    lambda engine, requests, mixing: engine.embedding(),
    lambda engine, requests, mixing: engine.sync_weights([]),
    lambda engine, requests, mixing: engine.sync_loaded([]),
    lambda engine, requests, mixing: engine.weight_version,
]
"""What needs a running engine."""


def at_once(*jobs: Callable[[], Any]) -> list[Any]:
    """Results, or exceptions, of jobs in threads of their own."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        futures = [pool.submit(job) for job in jobs]
        return [future.exception(WAIT_S) or future.result() for future in futures]


def test_callers_at_once_get_what_each_gets_alone(engine, bound_to_demo):
    calls = [
        (random_requests(6, 5, 60, samples=2), UNSTOPPED, bound_to_demo(MIXING)),
        (random_requests(5, 20, 40, samples=2), replace(UNSTOPPED, temperature=1.3, max_new_tokens=30), MIXING),
        (random_requests(7, 10, 50), replace(UNSTOPPED, max_new_tokens=55), TokenSampling()),
        (random_requests(4, 10, 50, explore=False), replace(UNSTOPPED, temperature=0.5), NeighborMixing(0.9, k=2)),
    ]
    calls = [(r, s, b if hasattr(b, "strategy") else bound_to_demo(b)) for r, s, b in calls]
    alone = [engine.generate(*call) for call in calls]
    together = at_once(*(lambda call=call: engine.generate(*call) for call in calls))
    for ours, expected in zip(together, alone, strict=True):
        assert_same_rollouts(ours, expected)
    assert mixed_total(alone[0]) > 50


def test_requests_of_others_are_sampled_as_they_ask(engine, mixing):
    """As those of vLLM's own routes beside ours are."""
    requests = random_requests(6, 20, 60)
    expected = engine.generate(requests, UNSTOPPED, mixing)
    tokens, scores = greedy_beside(engine, lambda: None)
    made: list[Rollout] = []
    beside, their_scores = greedy_beside(engine, lambda: made.extend(engine.generate(requests, UNSTOPPED, mixing)))
    assert beside == tokens
    torch.testing.assert_close(their_scores, scores, atol=1e-4, rtol=0)
    assert_same_rollouts(made, expected)


@pytest.mark.parametrize("reason", ["abort", "error", "length"])
def test_a_response_that_vllm_ends_by_itself_is_no_rollout(engine, mixing, monkeypatch, reason):
    finished = engine._loop.finished

    def cut(call: Any) -> list[Any]:
        outputs = finished(call)
        for output in outputs:
            made = output.outputs[0]
            made.token_ids, made.finish_reason = made.token_ids[:3], reason
        return outputs

    requests = random_requests(3, 20, 60)
    expected = engine.generate(requests, UNSTOPPED, mixing)
    with monkeypatch.context() as patched:
        patched.setattr(engine._loop, "finished", cut)
        with pytest.raises(RuntimeError, match=rf"ended a response after 3 of at most 96 tokens by itself .{reason}"):
            engine.generate(requests, UNSTOPPED, mixing)
    assert_same_rollouts(engine.generate(requests, UNSTOPPED, mixing), expected)


def test_many_requests_over_few_slots(engine, mixing):
    requests = random_requests(125, 5, 40, samples=4)
    short = replace(UNSTOPPED, max_new_tokens=12)
    reports: list[tuple[int, int]] = []
    rollouts = engine.generate(requests, short, mixing, lambda *counts: reports.append(counts), slots=16)
    assert_same_rollouts(rollouts, engine.generate(requests, short, mixing))
    assert mixed_total(rollouts) > 500
    assert [finished for finished, _ in reports] == list(range(1, 501))
    assert reports[-1][1] == sum(r.length for r in rollouts)


def test_records_are_collected_in_batches(engine, mixing, monkeypatch):
    collected: list[int] = []
    collect = engine._collect
    monkeypatch.setattr(
        engine,
        "_collect",
        lambda session, slots, lengths: collected.append(len(slots)) or collect(session, slots, lengths),
    )
    engine.generate(random_requests(40, 5, 20), replace(UNSTOPPED, max_new_tokens=10), mixing, slots=16)
    assert sum(collected) == 40
    assert min(collected[:-1]) >= 2
    collected.clear()
    engine.generate(random_requests(40, 5, 20), replace(UNSTOPPED, max_new_tokens=10), mixing)
    assert collected == [40]


def test_a_session_has_a_slot_a_request_while_memory_lasts():
    assert slots_for(500, MIXING, 96, 16) == 500
    many = slots_for(10**9, MIXING, 4096, 16)
    assert many == 2**30 // (4096 * (4 + 4 + 1 + 3 * 8))
    assert slots_for(10**9, MIXING, 4096, 16, distributions=True) == 2**30 // (4096 * (33 + 4 + 2 * 4 + 2 * 4))
    assert slots_for(10**9, NeighborMixing(k=100), 10**6, 256) == 256 + 64


def test_preempted_rollouts_in_reused_slots(demo, oracle, mixing, trainer):
    engine = start_engine(demo, num_gpu_blocks_override=16, max_num_batched_tokens=48)
    preempted = count_preemptions(engine)
    requests = random_requests(36, 5, 60)
    rollouts = engine.generate(requests, UNSTOPPED, mixing, slots=12)
    assert len(preempted) >= 3
    assert_same_rollouts(rollouts, oracle.generate(requests, UNSTOPPED, mixing))
    assert replay_error(rollouts, MIXING, UNSTOPPED.temperature, trainer) < 1e-4


@pytest.mark.parametrize("options", [{}, {"max_num_batched_tokens": 40, "num_gpu_blocks_override": 18}])
def test_a_prefix_is_gone_on_from_exactly(demo, mixing, trainer, options):
    engine = start_engine(demo, **options)
    preempted = count_preemptions(engine)
    whole = engine.generate(random_requests(8, 20, 60), UNSTOPPED, mixing)
    given = [10 + 9 * number for number in range(8)]
    assert all(r.length > n for r, n in zip(whole, given, strict=True))
    requests = [continued(r, n) for r, n in zip(whole, given, strict=True)]
    assert sum(len(r.prefix.mixture.positions) for r in requests) > 50
    for _ in range(2):  # the second time from the prefix cache
        again = engine.generate(requests, UNSTOPPED, mixing, slots=5)
        for ours, n in zip(again, given, strict=True):
            assert ours.prefix_length == n
            assert ours.log_probs[:n].tolist() == [0.0] * n
        same = as_one_piece(again, whole)
        assert_same_rollouts(same, whole)
        assert replay_error(same, MIXING, UNSTOPPED.temperature, trainer) < 1e-4
    assert bool(preempted) == bool(options)


def test_continuations_share_the_blocks_of_their_prefix_and_plain_tokens_do_not(engine, oracle, mixing, monkeypatch):
    cached: list[int] = []

    def noted(stream, output):
        cached.append(output.num_cached_tokens)
        return note(stream, output)

    note = VllmStream._note
    monkeypatch.setattr(VllmStream, "_note", noted)
    engine.llm.reset_prefix_cache()
    whole = max(engine.generate(random_requests(3, 40, 40), UNSTOPPED, mixing), key=lambda r: r.length)
    assert whole.length == 96
    first = continued(whole, 60)
    cached.clear()
    group = [replace(first, key=first.key + sample) for sample in range(3)]
    rollouts = engine.generate(group, UNSTOPPED, mixing)
    assert cached[0] == 32  # the prompt's: the blocks of the response are its own
    engine.generate(group, UNSTOPPED, mixing)
    assert cached[3:] == [96, 96, 96]
    plain = replace(first, prefix=Prefix(first.prefix.ids))
    cached.clear()
    (without,) = engine.generate([plain], UNSTOPPED, mixing)
    assert cached == [32]
    (as_prompt,) = oracle.generate(
        [Request((*first.prompt_ids, *first.prefix.ids), first.key)], replace(UNSTOPPED, max_new_tokens=36), mixing
    )
    assert without.response_ids[60:].tolist() == as_prompt.response_ids.tolist()
    torch.testing.assert_close(without.log_probs[60:], as_prompt.log_probs, atol=1e-4, rtol=0)
    assert float((without.log_probs - rollouts[0].log_probs).abs().max()) > 1e-3


def test_a_failing_strategy_leaves_other_callers_alone(engine, mixing):
    requests = random_requests(6, 20, 60, samples=2)
    expected = engine.generate(requests, UNSTOPPED, mixing)
    broken = replace(mixing, strategy=FailsLater(rate=0.4, k=3, end_token=None))
    sound, failed = at_once(
        lambda: engine.generate(requests, UNSTOPPED, mixing), lambda: engine.generate(requests, UNSTOPPED, broken)
    )
    assert isinstance(failed, StrategyError)
    assert "a typing error of the author" in str(failed)
    assert_same_rollouts(sound, expected)


def test_a_broken_forward_raises_in_every_caller_and_the_engine_can_be_started_again(demo, mixing):
    engine = start_engine(demo)
    requests = random_requests(6, 20, 60)
    expected = engine.generate(requests, UNSTOPPED, mixing)
    state = engine._call("ngrpo_mixing_state")[0]
    fill, left = state.before_forward, [30]

    def breaks(*arguments: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise ValueError("a broken kernel")
        fill(*arguments)

    state.before_forward = breaks
    for error in at_once(*(lambda: engine.generate(requests, UNSTOPPED, mixing) for _ in range(3))):
        assert isinstance(error, ValueError)
        assert str(error) == "a broken kernel"
    with pytest.raises(RuntimeError, match="vLLM failed before .ValueError: a broken kernel. and must be started"):
        engine.generate(requests, UNSTOPPED, mixing)
    engine.close()
    for use in USES:
        with pytest.raises(RuntimeError, match="^the engine is not running; call start first$"):
            use(engine, requests, mixing)
    engine.start(torch.device("cpu"))
    assert_same_rollouts(engine.generate(requests, UNSTOPPED, mixing), expected)


def test_an_interrupted_call_leaves_the_engine_as_it_was(engine, mixing):
    requests = random_requests(24, 20, 60)
    expected = engine.generate(requests, UNSTOPPED, mixing)

    def interrupt(finished: int, tokens: int) -> None:
        if finished > 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.generate(requests, UNSTOPPED, mixing, interrupt, slots=14)
    assert engine._call("ngrpo_mixing_state")[0].sessions == {}
    assert engine.llm.llm_engine.get_num_unfinished_requests() == 0
    assert_same_rollouts(engine.generate(requests, UNSTOPPED, mixing), expected)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request((5,) * 161, 1), "161 prompt tokens, .*max_new_tokens=96 are more than the 256"),
        (Request((5, 576), 1), "token 576"),
    ],
)
def test_requests_that_would_be_cut_are_refused(engine, mixing, request_, said):
    with pytest.raises(SettingError, match=said):
        engine.generate([*random_requests(2, 5, 9), request_], UNSTOPPED, mixing)


def test_requests_that_come_when_all_have_finished_run_too(engine, mixing):
    requests = random_requests(9, 5, 60)
    expected = engine.generate(requests, UNSTOPPED, mixing)
    with engine.stream(UNSTOPPED, mixing, at_once=3) as stream:
        for start in range(0, 9, 3):  # nothing is taken: every slot is in use when the next ones come
            stream.add(requests[start : start + 3])
            finished: list[int] = []
            while numbers := stream.wait():
                finished += numbers
            assert sorted(finished) == [start, start + 1, start + 2]
        assert_same_rollouts(stream.rollouts(range(9)), expected)


def test_requests_may_be_added_while_others_run(engine, mixing):
    requests = random_requests(30, 5, 60)
    expected = engine.generate(requests, UNSTOPPED, mixing)
    made: dict[int, Rollout] = {}
    with engine.stream(UNSTOPPED, mixing, at_once=10) as stream:
        stream.add(requests[:10])
        added = 10
        while finished := stream.wait():
            wanted = [number for number in finished if number % 3]  # the others are collected at the end
            made.update(zip(wanted, stream.rollouts(wanted), strict=True))
            stream.add(requests[added : added + len(finished)])
            added = min(added + len(finished), 30)
        rest = range(0, 30, 3)
        made.update(zip(rest, stream.rollouts(rest), strict=True))
        with pytest.raises(SettingError, match="request 0 has token 576"):
            stream.add([Request((576,), 1)])
    assert_same_rollouts([made[number] for number in range(30)], expected)


def test_a_serving_stream_tells_tokens_as_they_come_and_makes_nothing_of_what_is_withdrawn(engine, mixing):
    requests = [replace(one, max_new_tokens=20 + 3 * number) for number, one in enumerate(random_requests(12, 5, 60))]
    expected = engine.generate(requests, UNSTOPPED, mixing)
    assert [one.length for one in expected] == [20 + 3 * number for number in range(12)]
    made: dict[int, Rollout] = {}
    told: dict[int, list[int]] = {number: [] for number in range(4)}
    with engine.serving_stream(UNSTOPPED, mixing, plain=False) as stream:
        stream.add(requests[:4], watched=True)
        stream.add(requests[4:8])
        turns = 0
        while stream.unfinished:
            finished = stream.wait()
            for number, tokens in stream.news().items():
                told[number] += tokens
            made.update(zip(finished, stream.rollouts(finished), strict=True))
            turns += 1
            if turns == 3:
                stream.withdraw([1, 6, 99])
                stream.add(requests[8:])
        for number in range(4):
            whole = expected[number].response_ids.tolist()
            assert 0 < len(told[number]) < len(whole)
            assert whole[: len(told[number])] == told[number]
        assert set(made) == set(range(12)) - {1, 6}
        stream.withdraw([0, 1])
        stream.interrupt()
        assert stream.wait() == []
        assert (stream._requests, stream._running, stream._told) == ({}, {}, {})
    for number, rollout in made.items():
        assert rollout.response_ids.equal(expected[number].response_ids)
        assert torch.allclose(rollout.log_probs, expected[number].log_probs, atol=1e-4)
    assert engine.llm.llm_engine.get_num_unfinished_requests() == 0


def test_another_thread_ends_the_wait_of_a_serving_stream(engine, mixing):
    with engine.serving_stream(UNSTOPPED, mixing, plain=False) as stream:
        stream.add(random_requests(2, 5, 60))
        other = threading.Thread(target=stream.interrupt)
        other.start()
        other.join()
        assert stream.wait() == []
        stream.withdraw([0, 1])
        assert stream.unfinished == 0


def test_a_watched_request_may_end_with_the_tokens_that_it_has(engine, mixing):
    requests = random_requests(3, 5, 60)
    expected = engine.generate(requests, UNSTOPPED, mixing)
    made: dict[int, Rollout] = {}
    told: list[int] = []
    with engine.serving_stream(UNSTOPPED, mixing, plain=False) as stream:
        stream.add(requests, watched=True)
        while stream.unfinished:
            finished = stream.wait()
            told += stream.news().get(1, [])
            if len(told) > 4:
                stream.end([1])
            made.update(zip(finished, stream.rollouts(finished), strict=True))
    ended, whole = made[1], expected[1]
    assert len(told) <= ended.length < whole.length
    assert ended.response_ids.equal(whole.response_ids[: ended.length])
    assert torch.allclose(ended.log_probs, whole.log_probs[: ended.length], atol=1e-4)
    assert ended.mixture.positions.equal(whole.cut(ended.length).mixture.positions)
    assert {number: one.length for number, one in made.items() if number != 1} == {
        0: expected[0].length,
        2: expected[2].length,
    }
