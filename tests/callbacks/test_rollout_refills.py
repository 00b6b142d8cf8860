"""Refills of dropped groups on several ranks: the same groups as on one, and as many collectives on each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from threading import Barrier, Thread, local
from typing import Any

import pytest
import torch
from fake_run import Module, trainer
from made_rollouts import experience, rollout, score

from ngrpo.callbacks.rollout import RolloutCallback
from ngrpo.distributed.collectives import Ranks
from ngrpo.rollout.dynamic_sampling import DynamicSampling, every_group, mixed_outcomes
from ngrpo.rollout.recovery import made_with_recovery
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.training.run_length import RunLength
from ngrpo.types.experience import Experience
from ngrpo.types.problems import PassRate, Problem, Prompt, PromptBatch
from ngrpo.types.scores import Verdict

GROUP = 4


def solved(key: int) -> int:
    """The number of a problem's answers that are right: 0, 1 ... GROUP, in a fixed disorder."""
    return key * 7 % (GROUP + 1)


@dataclass
class Rank:
    """A rank's part of a run: a worker whose outcomes depend on the problem alone, and the common stream."""

    stream: count = field(default_factory=count)
    rounds: list[list[int]] = field(default_factory=list)
    pass_rates: list[PassRate] = field(default_factory=list)
    module: Module = field(default_factory=Module)
    batch: PromptBatch | None = None

    settings = RolloutSettings(group_size=GROUP)
    engine = None  # of no kind that takes further requests while it runs

    def draw(self, number: int) -> list[Prompt]:
        return [Prompt(Problem(key, "", ""), (1,)) for key in islice(self.stream, number)]

    def roll_out(self, prompts: list[Prompt], iteration: int) -> Experience:
        self.rounds.append([prompt.problem.key for prompt in prompts])
        verdicts = [
            Verdict.CORRECT if i < solved(p.problem.key) else Verdict.WRONG for p in prompts for i in range(GROUP)
        ]
        made = experience([rollout([1], [2])] * len(verdicts), [score(verdict) for verdict in verdicts], GROUP)
        keys = [prompt.problem.key for prompt in prompts for _ in range(GROUP)]
        return Experience(prompts, made.rollouts, keys, made.texts, made.scores, 1.0, 0.5)

    def recovered(self, make: Callable[[], Experience | None]) -> Experience | None:
        return made_with_recovery(make, lambda restart: None, str)

    def sleep(self) -> None: ...

    def shape_rewards(self, made: Experience) -> Experience:
        return made

    def observe(self, made: Sequence[Experience]) -> None: ...

    @property
    def keys(self) -> list[int]:
        assert self.batch is not None
        return [prompt.problem.key for prompt in self.batch.experience.prompts]


class Gathering:
    """Collectives between threads; a rank that calls one more often than the others breaks the barrier."""

    def __init__(self, ranks: int) -> None:
        self.barrier = Barrier(ranks, timeout=10)
        self.posted: list[Any] = [None] * ranks
        self.here = local()

    def ranks(self) -> Ranks:
        return Ranks(self.here.rank, len(self.posted))

    def gathered(self, own: Any) -> list[Any]:
        self.posted[self.here.rank] = own
        self.barrier.wait()
        everyone = list(self.posted)
        self.barrier.wait()
        return everyone


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int, DynamicSampling], list[Rank]]:
    def on_ranks(number: int, batch_size: int, sampling: DynamicSampling) -> list[Rank]:
        """Starts one iteration on every rank at once, each in its thread."""
        made, processes = [Rank() for _ in range(number)], Gathering(number)
        monkeypatch.setattr("ngrpo.callbacks.rollout.ranks", processes.ranks)
        monkeypatch.setattr("ngrpo.callbacks.rollout.gathered", processes.gathered)
        monkeypatch.setattr("ngrpo.rollout.recovery.gathered_everywhere", processes.gathered)

        def start(rank: int) -> None:
            processes.here.rank, own = rank, made[rank]
            prompts = own.draw(batch_size)[rank::number]  # as `PromptStream` deals them out
            batch = PromptBatch(prompts, 0, 0, own.draw, own.pass_rates.extend)
            RolloutCallback(own, RunLength(1), sampling).on_train_batch_start(trainer(), own.module, batch, 0)  # type: ignore[arg-type]
            own.batch = batch

        threads = [Thread(target=start, args=(rank,)) for rank in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(rank.batch is not None for rank in made)
        return made

    return on_ranks


def test_dead_groups_are_replaced_by_the_next_prompts_of_the_stream(run):
    (rank,) = run(1, 6, DynamicSampling(mixed_outcomes, max_refills=5))
    assert [solved(key) for key in range(6)] == [0, 2, 4, 1, 3, 0]
    # 0, 2 and 5 are dead; of 6, 7 and 8 the second.
    assert rank.rounds == [[0, 1, 2, 3, 4, 5], [6, 7, 8], [9]]
    assert rank.keys == [6, 1, 9, 3, 4, 8]
    assert rank.module.logged == {
        "sampling/generated": 10, "sampling/kept": 6, "sampling/refills": 2,
        "sampling/correct": pytest.approx(sum(solved(key) for key in range(10)) / 40),
    }  # fmt: skip


def test_the_number_of_rounds_is_limited(run):
    (rank,) = run(1, 6, DynamicSampling(mixed_outcomes, max_refills=1))
    assert rank.keys == [6, 1, 2, 3, 4, 8]
    (rank,) = run(1, 6, DynamicSampling(lambda made: made.correct.all(-1) & False, max_refills=3))
    assert rank.keys == list(range(6))
    assert rank.module.logged["sampling/refills"] == 3
    assert next(rank.stream) == 24


@pytest.mark.parametrize("sampling", [DynamicSampling(every_group, 4), DynamicSampling(mixed_outcomes, 0)])
def test_without_refills_the_batch_stays_as_it_is(run, sampling: DynamicSampling):
    (rank,) = run(1, 6, sampling)
    assert rank.keys == list(range(6))
    assert rank.rounds == [[0, 1, 2, 3, 4, 5]]
    assert next(rank.stream) == 6


@pytest.mark.parametrize("ranks", [2, 3, 6])
@pytest.mark.parametrize("batch", [6, 12, 30])
@pytest.mark.parametrize("max_refills", [1, 20])
def test_the_same_groups_are_at_the_same_places_on_any_number_of_ranks(run, ranks: int, batch: int, max_refills: int):
    """Also those that nothing replaced."""
    sampling = DynamicSampling(mixed_outcomes, max_refills)
    (alone,) = run(1, batch, sampling)
    several = run(ranks, batch, sampling)
    assert [rank.keys for rank in several] == [alone.keys[rank::ranks] for rank in range(ranks)]
    assert [len(rank.keys) for rank in several] == [batch // ranks] * ranks
    assert sum(len(keys) for rank in several for keys in rank.rounds) == sum(len(keys) for keys in alone.rounds)
    assert {rank.module.logged["sampling/refills"] for rank in [alone, *several]} == {len(alone.rounds) - 1}
    assert len({next(rank.stream) for rank in [alone, *several]}) == 1  # the position is the same everywhere
    assert all(sorted(rank.pass_rates) == sorted(alone.pass_rates) for rank in several)


def test_a_rank_that_misses_nothing_goes_through_the_rounds_with_the_others(run):
    def odd_or_new(made: Experience) -> torch.Tensor:
        return torch.tensor([prompt.problem.key % 2 == 1 or prompt.problem.key >= 6 for prompt in made.prompts])

    ranks = run(2, 6, DynamicSampling(odd_or_new, max_refills=4))
    assert [rank.keys for rank in ranks] == [[6, 7, 8], [1, 3, 5]]
    assert [rank.rounds for rank in ranks] == [[[0, 2, 4], [6, 7, 8]], [[1, 3, 5]]]
    assert [rank.module.logged["sampling/refills"] for rank in ranks] == [1, 1]
    assert [next(rank.stream) for rank in ranks] == [9, 9]
