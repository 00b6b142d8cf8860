"""Rollouts under vLLM's scheduler: preemption, chunked prefill, shared prompts."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from vllm_checks import (
    MIXING,
    UNSTOPPED,
    assert_same_rollouts,
    count_preemptions,
    mixed_total,
    random_requests,
    replay_error,
    start_engine,
)

from ngrpo.rollout.records.stepper import fill_buffers, lookup
from ngrpo.rollout.vllm.request_loop import RequestLoop
from ngrpo.rollout.vllm.rollout_stream import VllmStream
from ngrpo.types.rollouts import Request

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm


@pytest.fixture
def fed_mixtures(monkeypatch) -> Counter:
    """Counts how often the mixture of a slot's position was fed."""
    from ngrpo.rollout.vllm import mixing_state

    fed: Counter = Counter()

    def counted(session, buffers, addresses, positions, beside=False):
        mixed = lookup(session.records, session.inputs, addresses, positions)[0]
        fed.update(zip(addresses[mixed].tolist(), positions[mixed].tolist(), strict=True))
        fill_buffers(session, buffers, addresses, positions, beside)

    monkeypatch.setattr(mixing_state, "fill_buffers", counted)
    return fed


@pytest.mark.parametrize("chunk", [2048, 48])
def test_preempted_rollouts_are_recomputed_with_their_mixtures(demo, oracle, mixing, trainer, fed_mixtures, chunk):
    engine = start_engine(demo, num_gpu_blocks_override=16, max_num_batched_tokens=chunk)
    preempted = count_preemptions(engine)
    requests = random_requests(12, 5, 60)
    rollouts = engine.generate(requests, UNSTOPPED, mixing)
    assert len(preempted) >= 3
    assert max(fed_mixtures.values()) > 1
    assert_same_rollouts(rollouts, oracle.generate(requests, UNSTOPPED, mixing))
    assert replay_error(rollouts, MIXING, UNSTOPPED.temperature, trainer) < 1e-4


def test_prefills_in_chunks(demo, oracle, mixing, trainer, fed_mixtures):
    engine = start_engine(demo, max_num_batched_tokens=40)
    requests = random_requests(12, 90, 150)
    rollouts = engine.generate(requests, UNSTOPPED, mixing)
    assert mixed_total(rollouts) > 100
    assert max(fed_mixtures.values()) == 1
    assert_same_rollouts(rollouts, oracle.generate(requests, UNSTOPPED, mixing))
    assert replay_error(rollouts, MIXING, UNSTOPPED.temperature, trainer) < 1e-4


@pytest.fixture
def cached_tokens(engine, monkeypatch) -> list[list[int]]:
    """Collects, for each call of vLLM, the prompt tokens that its prefix cache served."""
    seen: list[list[int]] = []

    def noted(stream, output):
        number = int(output.request_id.rpartition("-")[2])
        if not stream._finished:
            seen.append([0] * len(stream._requests))
        seen[-1][number] = output.num_cached_tokens
        return real(stream, output)

    real = VllmStream._note
    monkeypatch.setattr(VllmStream, "_note", noted)
    return seen


def test_groups_are_admitted_together_and_the_longest_first_with_the_same_rollouts(engine, mixing, monkeypatch):
    admitted: list[str] = []
    real = RequestLoop.add

    def add(loop, call, submissions):
        admitted.extend(name.rpartition("-")[2] for name, _, _ in submissions)
        real(loop, call, submissions)

    monkeypatch.setattr(RequestLoop, "add", add)
    one, two = random_requests(2, 20, 30)
    asked = [replace(prompt, key=prompt.key + sample) for sample in range(2) for prompt in (one, two)]
    told = [replace(request, expected_tokens=length) for request, length in zip(asked, (2, 9, 5, 11), strict=True)]
    plain, ordered = (engine.generate(requests, UNSTOPPED, mixing, slots=2) for requests in (asked, told))
    assert "".join(admitted) == "0213" + "3120"
    assert_same_rollouts(ordered, plain)


def test_rollouts_of_a_prompt_share_its_blocks_and_none_of_a_response(engine, oracle, mixing, cached_tokens):
    engine.llm.reset_prefix_cache()
    (prompt,) = random_requests(1, 70, 70)
    group = [replace(prompt, key=prompt.key + sample) for sample in range(4)]
    short = replace(UNSTOPPED, max_new_tokens=72)
    firsts = engine.generate(group, short, mixing)
    assert cached_tokens[-1] == [0, 64, 64, 64]

    longest = max(firsts, key=lambda r: r.length)
    assert longest.length >= 64
    whole = torch.cat([longest.prompt_ids, longest.response_ids]).tolist()
    second = [Request(tuple(whole), prompt.key + 10, explore=False)]
    again = engine.generate(second, short, mixing)
    assert cached_tokens[-1] == [64]
    assert_same_rollouts(again, oracle.generate(second, short, mixing))

    engine.generate(second, short, mixing)
    assert cached_tokens[-1] == [len(whole) // 32 * 32]


def test_the_scheduler_of_an_engine_in_this_process_takes_a_limit_of_bursts(engine, oracle, mixing):
    from ngrpo.rollout.vllm.burst_scheduler import BurstScheduler
    from ngrpo.rollout.vllm.private import scheduler_in_process

    scheduler = scheduler_in_process(engine.llm)
    assert isinstance(scheduler, BurstScheduler)
    requests = random_requests(2, 5, 60)
    for steps in (32, 1):  # no more than is possible: the deprecated runner of a CPU makes single steps
        scheduler.limit_bursts(steps)
        assert_same_rollouts(engine.generate(requests, UNSTOPPED, mixing), oracle.generate(requests, UNSTOPPED, mixing))
