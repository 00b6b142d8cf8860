"""The order in which requests start, and that nothing depends on it."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.neighbor_table import build_neighbor_table
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.admission import admission_order
from ngrpo.rollout.torch_engine.batch_state import BatchState
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Prefix, Request, Rollout, Sampling

A, B, C = (1, 2), (3,), (4, 5, 6)
T = 10


def request(prompt: tuple[int, ...], given: int = 0, expected: int | None = None, key: int = 0) -> Request:
    prefix = Prefix(tuple(range(1, given + 1))) if given else None
    return Request(prompt, key, prefix=prefix, expected_tokens=expected)


@pytest.mark.parametrize(
    ("requests", "order"),
    [
        ([], []),
        ([request(A), request(A), request(B), request(B)], [0, 1, 2, 3]),
        ([request(A), request(B), request(A), request(B)], [0, 2, 1, 3]),
        ([request(A, given=4), request(B), request(C, given=1)], [1, 2, 0]),
        ([request(A, given=4), request(B, given=2), request(A, given=1)], [2, 0, 1]),
        ([request(A, expected=3), request(B, expected=7), request(C)], [2, 1, 0]),
        ([request(A, expected=99), request(B)], [0, 1]),
        ([request(A, given=3, expected=8), request(B, expected=6)], [1, 0]),
        ([request(A, given=5, expected=2), request(B, given=9)], [1, 0]),
    ],
)
def test_groups_stay_together_and_the_longest_start_first(requests: list[Request], order: list[int]) -> None:
    assert admission_order(requests, T) == order


ANY = st.builds(request, st.sampled_from([A, B, C]), st.integers(0, 9), st.none() | st.integers(0, 20))


@given(requests=st.lists(ANY, max_size=12))
def test_each_request_starts_once_and_no_prompt_is_left_and_come_back_to(requests: list[Request]) -> None:
    order = admission_order(requests, T)
    assert sorted(order) == list(range(len(requests)))
    prompts = [requests[number].prompt_ids for number in order]
    left = [one for one, following in zip(prompts, prompts[1:], strict=False) if one != following]
    assert len(set(left)) == len(left)
    longest = [
        max(min(r.expected_tokens or 0 if r.expected_tokens is not None else T, T) - r.given for r in requests
            if r.prompt_ids == prompt)
        for prompt in dict.fromkeys(prompts)
    ]  # fmt: skip
    assert [max(0, length) for length in longest] == sorted((max(0, length) for length in longest), reverse=True)


@pytest.fixture(scope="module")
def engine(tiny_model_path: str) -> TorchEngine:
    made = TorchEngine(ModelSource(tiny_model_path), max_batch_size=2)
    made.start(torch.device("cpu"))
    return made


@pytest.fixture(scope="module")
def mixing(engine: TorchEngine) -> BoundExploration:
    strategy, table = NeighborMixing(rate=0.4, k=3), engine.embedding()
    nothing = torch.zeros(len(table), dtype=torch.bool)
    neighbors = build_neighbor_table(table, strategy.k, strategy.metric, nothing)
    return BoundExploration(strategy, {"neighbors": neighbors}, ())


def requests_of(prompts: Sequence[tuple[int, ...]], samples: int, expected: Sequence[int | None]) -> list[Request]:
    return [
        request(prompt, given=number % 3, expected=length, key=100 * number + sample)
        for number, (prompt, length) in enumerate(zip(prompts, expected, strict=True))
        for sample in range(samples)
    ]


def assert_same(made: Rollout, expected: Rollout) -> None:
    assert made.key == expected.key
    assert torch.equal(made.response_ids, expected.response_ids)
    assert made.stop_reason == expected.stop_reason
    assert torch.equal(made.mixture.positions, expected.mixture.positions)
    assert torch.equal(made.mixture.record.ids, expected.mixture.record.ids)
    torch.testing.assert_close(made.mixture.record.weights, expected.mixture.record.weights, atol=1e-5, rtol=0)
    torch.testing.assert_close(made.log_probs, expected.log_probs, atol=1e-5, rtol=0)


def test_rollouts_are_the_same_in_any_order(engine: TorchEngine, mixing: BoundExploration) -> None:
    sampling = Sampling(1.0, 12, stop_ids=(7, 8, 9))
    plain = requests_of([A, B, C, (9, 9)], 3, [None] * 4)
    made = engine.generate(plain, sampling, mixing)
    assert sum(len(rollout.mixture.positions) for rollout in made) > 10
    for seed in range(4):
        draw = random.Random(seed)
        expected = [draw.choice([None, 1, 5, 12, 40]) for _ in range(4)]
        places = draw.sample(range(len(plain)), len(plain))
        told = requests_of([A, B, C, (9, 9)], 3, expected)
        again = engine.generate([told[place] for place in places], sampling, mixing)
        for place, rollout in zip(places, again, strict=True):
            assert_same(rollout, made[place])


def test_the_torch_engine_starts_the_longest_first(
    engine: TorchEngine, mixing: BoundExploration, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    real = BatchState.admit

    def admit(batch: BatchState, numbers: list[int], requests: list[Request]) -> Any:
        started.extend(numbers)
        return real(batch, numbers, requests)

    monkeypatch.setattr(BatchState, "admit", admit)
    asked = [request(A, expected=2), request(B, expected=9), request(A, expected=5), request(C, expected=7)]
    engine.generate(asked, Sampling(1.0, T, stop_ids=()), mixing)
    assert started == [1, 3, 2, 0]
