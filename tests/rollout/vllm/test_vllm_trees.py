"""Trees in vLLM: those of the torch engine, replayed at every position, and the blocks that their branches share."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from vllm_checks import MIXING, UNSTOPPED, assert_same_rollouts, mixed_total, random_requests, replay_error

from ngrpo.exploration.random import request_key
from ngrpo.rollout.scheduling.at_positions import ForkAtEntropy, ForkAtMixtures, ForkAtSurprise
from ngrpo.rollout.scheduling.at_share import ForkAtShare
from ngrpo.rollout.scheduling.base import Scheduler
from ngrpo.rollout.scheduling.growth import grow
from ngrpo.rollout.scheduling.latr import LookaheadTree
from ngrpo.rollout.scheduling.segments import ForkAtSegments
from ngrpo.rollout.vllm.rollout_stream import VllmStream, digests
from ngrpo.types.rollouts import Request, Rollout

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm

BLOCK = 32
SCHEDULERS: list[Scheduler] = [
    ForkAtShare(branching=2, shares=(0.3, 0.6)),
    ForkAtMixtures(),
    ForkAtSegments(segment=20, branching=2, first=1),
    ForkAtEntropy(branching=2),
    LookaheadTree(lookahead=(4, 8), growth=40),
]


def roots(prompts: int, size: int = 4) -> list[list[Request]]:
    return [
        [replace(prompt, key=request_key(3, number, sample)) for sample in range(size)]
        for number, prompt in enumerate(random_requests(6, 20, 70)[:prompts])
    ]


def grown(engine: Any, mixing: Any, scheduler: Scheduler, prompts: int) -> list[Rollout]:
    sampling = replace(UNSTOPPED, distributions=scheduler.reads_distributions)
    limit = sampling.max_new_tokens
    trees = grow(scheduler, roots(prompts), limit, lambda asked: engine.generate(asked, sampling, mixing))
    return [leaf for tree in trees for leaf in tree.leaves]


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """The tokens of prompt and prefix that the prefix cache served, by the request's key."""
    found: dict[int, int] = {}
    note: Callable[..., Any] = VllmStream._note

    def noted(stream: VllmStream, output: Any) -> Any:
        number, _ = stream._running[output.request_id]
        found[stream._requests[number].key] = output.num_cached_tokens
        return note(stream, output)

    monkeypatch.setattr(VllmStream, "_note", noted)
    return found


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=lambda one: type(one).__name__)
def test_trees_are_those_of_the_torch_engine(engine, oracle, mixing, trainer, scheduler: Scheduler) -> None:
    rollouts = grown(engine, mixing, scheduler, 6)
    assert mixed_total(rollouts) > 100
    assert sum(rollout.path is not None for rollout in rollouts) > 12
    expected = grown(oracle, mixing, scheduler, 6)
    assert_same_rollouts(rollouts, expected)
    assert [rollout.path for rollout in rollouts] == [rollout.path for rollout in expected]
    assert replay_error(rollouts, MIXING, UNSTOPPED.temperature, trainer) < 1e-4


def test_a_tree_is_the_same_beside_others(engine, mixing) -> None:
    for scheduler in (ForkAtSurprise(), LookaheadTree(lookahead=(4, 8), growth=40)):
        together = grown(engine, mixing, scheduler, 5)
        assert_same_rollouts(together[:8], grown(engine, mixing, scheduler, 2))


def test_branches_share_the_blocks_of_what_they_have_in_common(engine, mixing, cached: dict[int, int]) -> None:
    """The first one at a place computes them; mixtures in them are no hindrance."""
    engine.llm.reset_prefix_cache()
    leaves = grown(engine, mixing, ForkAtShare(branching=4, shares=(0.5,)), 3)
    for number in range(3):
        trunk, *branches = leaves[4 * number : 4 * number + 4]
        prompt = len(trunk.prompt_ids)
        assert trunk.path is not None
        start = trunk.path.starts[1]
        assert len(trunk.cut(start).mixture.positions) > 3  # type: ignore[union-attr]
        shared = (prompt + start) // BLOCK * BLOCK
        served = [cached[branch.key] for branch in branches]
        assert sorted(served) == [prompt // BLOCK * BLOCK, shared, shared]


def test_forks_at_different_places_share_the_blocks_before_both(engine, mixing, cached: dict[int, int]) -> None:
    engine.llm.reset_prefix_cache()
    (whole,) = engine.generate(random_requests(1, 40, 40), UNSTOPPED, mixing)
    prompt = tuple(whole.prompt_ids.tolist())
    for at, served in ((88, 32), (56, 64), (86, 96)):
        engine.generate([Request(prompt, 1000 + at, prefix=whole.cut(at))], UNSTOPPED, mixing)
        assert cached[1000 + at] == served
    # The same tokens with another mixture in the third block: the first two are shared.
    other = whole.cut(86)
    assert other.mixture is not None
    at = int((other.mixture.positions >= 64).nonzero()[0])
    other.mixture.record.weights[at] = other.mixture.record.weights[at].flip(0)
    engine.generate([Request(prompt, 3000, prefix=other)], UNSTOPPED, mixing)
    assert cached[3000] == 64


def test_digests_are_of_each_position() -> None:
    from made_rollouts import rollout

    one = rollout((1,), range(5), {1: {3: 0.5, 4: 0.5}, 2: {3: 0.5, 4: 0.5}, 4: {3: 0.25, 4: 0.75}}).mixture
    found = digests(one)
    assert found[0] == found[1] != found[2]
    assert not set(found) & set(digests(one, 7))
    assert digests(replace(one, record=one.record._replace(noise=torch.zeros(3)))) != found
