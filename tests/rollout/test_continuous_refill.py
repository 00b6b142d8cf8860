"""Refills without rounds bring exactly what rounds bring, whatever finishes first."""

import random
from collections.abc import Callable, Sequence
from itertools import count, islice

import pytest
from made_rollouts import experience, rollout, score

from ngrpo.rollout.continuous_refill import GrowingProgress, ReplayedDraw, ScoredGroups, refilled_rounds
from ngrpo.rollout.dynamic_sampling import (
    DynamicSampling,
    GroupSelection,
    certain_prompts,
    mixed_outcomes,
    round_sizes,
)
from ngrpo.types.experience import Experience
from ngrpo.types.problems import Problem, Prompt
from ngrpo.types.rollouts import Request, Rollout
from ngrpo.types.scores import Verdict

SIZE = 2
Draw = Callable[[int], list[Prompt]]


def endless(seed: int) -> Draw:
    """Draws prompts in order; the draws are those of a stream that goes on."""
    numbers = count()
    return lambda number: [Prompt(Problem(key, str(seed), ""), (1,)) for key in islice(numbers, number)]


def group_of(prompt: Prompt) -> Experience:
    """Two answers of a problem, by its key and seed: most often both right or both wrong."""
    outcome = random.Random(f"{prompt.problem.question} {prompt.problem.key}").choice(["mixed", "solved", "failed"])
    verdicts = {"mixed": (1, 0), "solved": (1, 1), "failed": (0, 0)}[outcome]
    scores = [score(Verdict.CORRECT if right else Verdict.WRONG) for right in verdicts]
    made = experience([rollout([1], [2])] * SIZE, scores, SIZE)
    return Experience([prompt], made.rollouts, [prompt.problem.key] * SIZE, made.texts, scores, 1.0, 0.5)


class AnyOrder:
    """A group stream that finishes what is running in a random order."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._prompts: list[Prompt] = []
        self._running: list[int] = []
        self.most_running = 0

    def add(self, prompts: Sequence[Prompt]) -> None:
        self._running += range(len(self._prompts), len(self._prompts) + len(prompts))
        self._prompts += prompts
        self.most_running = max(self.most_running, len(self._running))

    def take(self) -> list[tuple[int, Experience]]:
        self._random.shuffle(self._running)
        number = self._random.randint(1, 3)
        done, self._running = self._running[:number], self._running[number:]
        return [(one, group_of(self._prompts[one])) for one in done]


def in_rounds(first: int, draw: Draw, sampling: DynamicSampling) -> GroupSelection:
    """The slow, obvious form."""

    def made(prompts: list[Prompt]) -> Experience:
        groups = [group_of(prompt) for prompt in prompts]
        return Experience(
            prompts,
            [one for group in groups for one in group.rollouts],
            [key for group in groups for key in group.keys],
            [text for group in groups for text in group.texts],
            [one for group in groups for one in group.scores],
            1.0 * len(groups),
            0.5 * len(groups),
        )

    selected = GroupSelection(made(draw(first)), sampling.keep)
    while selected.refills < sampling.max_refills and selected.missing:
        selected.refill(made(draw(len(selected.missing))))
    return selected


@pytest.mark.parametrize("max_refills", [0, 1, 2, 3, 50])
@pytest.mark.parametrize("first", [1, 5, 16])
def test_the_batch_is_that_of_the_rounds(first: int, max_refills: int) -> None:
    sampling = DynamicSampling(mixed_outcomes, max_refills)
    for seed in range(40):
        rounds_draw, draw = endless(seed), endless(seed)
        expected = in_rounds(first, rounds_draw, sampling)
        groups = AnyOrder(seed)
        rounds = refilled_rounds(groups, draw(first), draw, sampling)
        selected = GroupSelection(rounds[0], sampling.keep)
        for further in rounds[1:]:
            selected.refill(further)
        ours, theirs = selected.experience, expected.experience
        assert ours.keys == theirs.keys
        assert ours.scores == theirs.scores
        assert (ours.generate_s, ours.reward_s, ours.tokens) == (theirs.generate_s, theirs.reward_s, theirs.tokens)
        assert selected.pass_rates == expected.pass_rates
        assert (selected.refills, selected.groups_generated) == (expected.refills, expected.groups_generated)
        assert draw(1)[0].problem.key == rounds_draw(1)[0].problem.key  # nothing was drawn in vain
        assert groups.most_running <= first


def test_only_what_is_certain_is_started() -> None:
    assert certain_prompts(4, [False] * 4, 9) == 4
    assert certain_prompts(4, [True, False, False, True], 9) == 6
    # The group that stands in the way of a round's end may still be kept: then this round is the last.
    assert certain_prompts(4, [True, False, False, True, True], 1) == 6
    assert certain_prompts(4, [True, False, False, True, True], 2) == 7
    assert certain_prompts(4, [True] * 4, 0) == 4
    assert round_sizes(4, [True, False, False, True, True, False, False], 9) == [4, 2, 1]
    assert round_sizes(4, [True, False, False, True, True, True], 1) == [4, 2]
    assert round_sizes(3, [False] * 3, 5) == [3]


def test_a_replacement_does_not_wait_for_the_slowest_group() -> None:
    """Group 0 runs until nothing else does."""

    class SlowFirst(AnyOrder):
        def take(self) -> list[tuple[int, Experience]]:
            self._running.sort(key=lambda number: number == 0)
            done = self._running[:1]
            if done == [0]:
                late.append(len(self._prompts))
            del self._running[:1]
            return [(one, group_of(self._prompts[one])) for one in done]

    late: list[int] = []
    draw = endless(1)
    rounds = refilled_rounds(SlowFirst(0), draw(8), draw, DynamicSampling(mixed_outcomes, 50))
    assert late[0] > 8
    assert sum(len(one.prompts) for one in rounds) >= late[0]


class Stream:
    """Finishes one request after the other, the last one first."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.left: list[int] = []

    def add(self, requests: Sequence[Request]) -> None:
        self.left += range(len(self.requests), len(self.requests) + len(requests))
        self.requests += requests

    def wait(self) -> list[int]:
        return [self.left.pop()] if self.left else []

    def rollouts(self, numbers: Sequence[int]) -> list[Rollout]:
        return [rollout([self.requests[number].key], [number]) for number in numbers]


def test_a_group_is_scored_when_its_last_response_has_come() -> None:
    scored: list[tuple[int, list[int]]] = []

    def requests(prompts: Sequence[Prompt]) -> list[Request]:
        return [Request((1,), prompt.problem.key) for prompt in prompts for _ in range(SIZE)]

    def scoring(prompt: Prompt, made: list[Rollout], seconds: float) -> Experience:
        scored.append((prompt.problem.key, [int(one.response_ids[0]) for one in made]))
        assert seconds >= 0
        return group_of(prompt)

    draw = endless(0)
    groups = ScoredGroups(Stream(), SIZE, requests, scoring)
    groups.add(draw(2))
    ((number, group),) = groups.take()
    groups.add(draw(1))
    assert [n for n, _ in groups.take()] + [n for n, _ in groups.take()] == [2, 0]
    assert groups.take() == []
    assert (number, group.prompts[0].problem.key) == (1, 1)
    assert scored == [(1, [2, 3]), (2, [4, 5]), (0, [0, 1])]


def test_draws_are_repeated_for_an_engine_that_was_rebuilt() -> None:
    drawn = ReplayedDraw(endless(0))
    first = drawn.from_start()
    assert [p.problem.key for p in [*first(2), *first(1)]] == [0, 1, 2]
    second = drawn.from_start()
    assert [p.problem.key for p in [*second(1), *second(4)]] == [0, 1, 2, 3, 4]


def test_progress_begins_anew_with_further_rollouts() -> None:
    begun: list[int] = []
    told: list[tuple[int, int]] = []

    def begin(total: int) -> Callable[[int, int], None]:
        begun.append(total)
        return lambda finished, tokens: told.append((finished, tokens))

    progress = GrowingProgress(begin)
    progress.grow(8)
    progress(3, 30)
    progress.grow(4)
    progress(5, 50)
    assert begun == [8, 9]
    assert told == [(3, 30), (2, 20)]
