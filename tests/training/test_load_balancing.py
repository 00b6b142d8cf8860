"""Load balancing over ranks: equal counts, near-equal cost, and objects that come back where they were."""

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, local
from typing import Any

import pytest
import torch
from forked import call_in_ranks
from torch import distributed

from ngrpo.distributed.collectives import exchanged
from ngrpo.training import load_balancing
from ngrpo.training.load_balancing import (
    LoadBalance,
    SequenceCost,
    assign_groups,
    assign_pieces,
    assign_ranks,
    rank_loads,
)


def test_every_rank_gets_as_many_and_nearly_as_much():
    pick = random.Random(0)
    for _ in range(50):
        ranks = pick.choice([1, 2, 4, 8])
        costs = [pick.uniform(1, 100) ** 2 for _ in range(ranks * pick.randint(1, 20))]
        assigned = assign_ranks(costs, ranks)
        held = [[costs[i] for i, target in enumerate(assigned) if target == rank] for rank in range(ranks)]
        assert len({len(part) for part in held}) == 1
        assert max(map(sum, held)) - min(map(sum, held)) <= max(costs)


def test_an_assignment_by_hand():
    """10 | 1, then 9 to the lighter: 10 + 2 against 9 + 3."""
    assert assign_ranks([2.0, 10.0, 3.0, 9.0], 2) == [0, 0, 1, 1]


def in_groups(sizes: list[int], alone: list[float], repeated: float) -> list[SequenceCost]:
    """Sequences of prompts 0, 1, ..., so many each, and what a sequence of each costs."""
    each = zip(sizes, alone, strict=True)
    return [SequenceCost(cost, prompt, repeated) for prompt, (size, cost) in enumerate(each) for _ in range(size)]


def test_groups_stay_whole_by_hand():
    """2 * 10 - 4 and 2 * 6 - 4 on each rank; one by one it has a sequence of every prompt, and saves nothing."""
    costs = in_groups([2, 2, 2, 2], [10, 10, 6, 6], repeated=4)
    assert assign_groups(costs, 2) == [0, 0, 1, 1, 0, 0, 1, 1]
    assert rank_loads(costs, assign_groups(costs, 2), 2) == [24.0, 24.0]
    assert rank_loads(costs, assign_pieces(costs, 1, 2), 2) == [32.0, 32.0]


def test_groups_in_halves_by_hand():
    """A whole group of the first prompt is 4 * 40 - 3 * 8 = 136, four sequences one by one are 100, two halves 84."""
    costs = in_groups([4, 4, 4, 4], [40, 30, 20, 10], repeated=8)
    assert max(rank_loads(costs, assign_pieces(costs, 4, 4), 4)) == 136
    assert max(rank_loads(costs, assign_pieces(costs, 1, 4), 4)) == 100
    assert assign_groups(costs, 4) == [0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 0, 1, 0, 1]
    assert rank_loads(costs, assign_groups(costs, 4), 4) == [84.0] * 4


def test_the_pieces_of_a_group_are_alike():
    """9 + 3 and 4 + 2, not 9 + 4 and 3 + 2."""
    costs = [SequenceCost(alone, 0, 1) for alone in (9, 3, 4, 2)]
    assert assign_pieces(costs, 2, 2) == [0, 0, 1, 1]


def test_nothing_to_save_leaves_sequences_one_by_one():
    costs = [SequenceCost(10, prompt, 0) for prompt in (0, 1, 1, 0, 1, 0)]
    assert assign_pieces(costs, 3, 2) == [0, 1, 1, 0, 1, 0]
    assert assign_groups(costs, 2) == assign_ranks([10] * 6, 2) == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("sizes", "ranks"),
    [([2, 2, 2], 2), ([1, 3], 2), ([3, 5, 4], 4)],
    ids=["groups that the ranks cannot share out", "sizes without a common piece", "both"],
)
def test_groups_without_equal_pieces_are_assigned_one_by_one(sizes: list[int], ranks: int):
    costs = in_groups(sizes, [float(10 - number) for number in range(len(sizes))], repeated=5)
    assert assign_groups(costs, ranks) == assign_ranks([cost.alone for cost in costs], ranks)


def test_a_group_of_twice_the_size_is_two():
    """As where a prompt was drawn twice."""
    costs = in_groups([2, 4], [10, 10], repeated=9)
    assert assign_groups(costs, 3) == [0, 0, 1, 2, 1, 2]


def random_groups(pick: random.Random, sizes: list[int]) -> list[SequenceCost]:
    """Of so many sequences, in any order, as interleaved groups are."""
    made = []
    for prompt, size in enumerate(sizes):
        repeated = pick.uniform(0, 100)
        made += [SequenceCost(repeated + pick.uniform(1, 20) ** 2, prompt, repeated) for _ in range(size)]
    return pick.sample(made, len(made))


def naive_load(held: list[SequenceCost]) -> float:
    prompts = {cost.prompt: cost.repeated for cost in held}
    return sum(prompts.values()) + sum(cost.alone - cost.repeated for cost in held)


def test_random_groups_are_shared_out_evenly_and_never_worse_than_one_by_one():
    pick, better, chosen = random.Random(0), 0, set()
    for _ in range(200):
        ranks = pick.choice([1, 2, 4, 8])
        size = pick.choice([1, 2, 3, 8])
        costs = random_groups(pick, [size] * (ranks * pick.randint(1, 4)))
        assigned = assign_groups(costs, ranks)
        held = [[cost for cost, target in zip(costs, assigned, strict=True) if target == rank] for rank in range(ranks)]
        assert len({len(part) for part in held}) == 1
        assert rank_loads(costs, assigned, ranks) == pytest.approx([naive_load(part) for part in held])
        one_by_one = assign_ranks([cost.alone for cost in costs], ranks)
        most = max(rank_loads(costs, assigned, ranks))
        assert most <= max(rank_loads(costs, one_by_one, ranks))
        every = {s: assign_pieces(costs, s, ranks) for s in (1, 2, 3, 4, 8) if size % s == 0}
        assert every[1] == one_by_one
        assert most == min(max(rank_loads(costs, each, ranks)) for each in every.values())
        better += most < max(rank_loads(costs, one_by_one, ranks))
        chosen |= {s for s, each in every.items() if each == assigned}
    assert better > 80
    assert chosen == {1, 2, 3, 4, 8}


def test_pieces_stay_together_and_are_costed_with_their_prompt_once():
    pick = random.Random(1)
    for size in (1, 2, 4, 8):
        costs = random_groups(pick, [8] * 4)
        assigned = assign_pieces(costs, size, 4)
        held = [[cost for cost, target in zip(costs, assigned, strict=True) if target == rank] for rank in range(4)]
        for part in held:
            counts = [sum(cost.prompt == prompt for cost in part) for prompt in range(4)]
            assert all(count % size == 0 for count in counts)
        if size == 8:
            loads = [naive_load(part) for part in held]
            by_prompt = [naive_load([cost for cost in costs if cost.prompt == prompt]) for prompt in range(4)]
            assert loads == pytest.approx(sorted(by_prompt, reverse=True))


def test_sequences_with_prompts_of_their_own_are_assigned_one_by_one():
    """As where prompts are not shared."""
    pick = random.Random(0)
    for _ in range(50):
        ranks = pick.choice([1, 2, 4, 8])
        alone = [float(pick.randint(1, 9)) for _ in range(ranks * pick.randint(1, 20))]
        costs = [SequenceCost(cost, number, cost / 2) for number, cost in enumerate(alone)]
        assert assign_groups(costs, ranks) == assign_ranks(alone, ranks)


class Ranks:
    """Threads in the place of ranks."""

    def __init__(self, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ranks, self.here, self.posted = ranks, local(), [None] * ranks
        self.barrier = Barrier(ranks)
        monkeypatch.setattr(load_balancing, "gathered", self.gathered)
        monkeypatch.setattr(load_balancing, "exchanged", self.exchanged)

    def exchanged(self, parts: list[Any]) -> list[Any]:
        return [part[self.here.rank] for part in self.gathered(parts)]

    def gathered(self, own: Any) -> list[Any]:
        self.posted[self.here.rank] = own
        self.barrier.wait(10)
        everyone = list(self.posted)
        self.barrier.wait(10)
        return everyone

    def run(self, function: Any) -> list[Any]:
        def on(rank: int) -> Any:
            self.here.rank = rank
            return function(rank)

        with ThreadPoolExecutor(self.ranks) as pool:
            return list(pool.map(on, range(self.ranks)))


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(("ranks", "count", "minibatches"), [(1, 6, 2), (2, 6, 1), (2, 6, 3), (4, 12, 3)])
def test_gather_is_the_inverse_of_scatter(
    ranks: int, count: int, minibatches: int, group: int, monkeypatch: pytest.MonkeyPatch
):
    pick = random.Random(1)
    costs = [[SequenceCost(pick.uniform(1, 100), i // group, 0.5) for i in range(count)] for _ in range(ranks)]
    size = count // minibatches

    def on(rank: int) -> list[tuple[int, int]]:
        made = LoadBalance.of(costs[rank], minibatches, rank)
        out = made.scatter([(rank, i) for i in range(count)])
        assert made.gather(out) == [(rank, i) for i in range(count)]
        return out

    held = Ranks(ranks, monkeypatch).run(on)
    assert sorted(item for part in held for item in part) == [(r, i) for r in range(ranks) for i in range(count)]
    for part in held:  # a sequence stays in its minibatch
        assert [i // size for _, i in part] == [position // size for position in range(count)]
    for minibatch in range(minibatches):
        loads = [sum(costs[r][i].alone for r, i in part[minibatch * size : (minibatch + 1) * size]) for part in held]
        assert max(loads) - min(loads) <= 100 * group


def held_by_ranks(
    costs: list[list[SequenceCost]], minibatches: int, monkeypatch: pytest.MonkeyPatch
) -> list[list[tuple[int, int]]]:
    """What each rank trains on, as (rank that generated it, its number there)."""

    def on(rank: int) -> list[tuple[int, int]]:
        own = costs[rank]
        return LoadBalance.of(own, minibatches, rank).scatter([(rank, i) for i in range(len(own))])

    return Ranks(len(costs), monkeypatch).run(on)


def test_groups_stay_whole_in_every_minibatch(monkeypatch: pytest.MonkeyPatch):
    costs = [in_groups([2, 2], [10, 12], repeated=8), in_groups([2, 2], [12, 10], repeated=8)]
    assert held_by_ranks(costs, 2, monkeypatch) == [[(1, 0), (1, 1), (0, 2), (0, 3)], [(0, 0), (0, 1), (1, 2), (1, 3)]]
    alone = [[cost._replace(prompt=i) for i, cost in enumerate(own)] for own in costs]
    assert held_by_ranks(alone, 2, monkeypatch) == [[(0, 0), (1, 0), (0, 2), (1, 2)], [(0, 1), (1, 1), (0, 3), (1, 3)]]


def test_equal_numbers_of_two_ranks_are_two_prompts(monkeypatch: pytest.MonkeyPatch):
    costs = [in_groups([2], [10], repeated=8)] * 2
    assert held_by_ranks(costs, 1, monkeypatch) == [[(0, 0), (0, 1)], [(1, 0), (1, 1)]]


def _exchange(rank: int, path: str) -> None:
    distributed.init_process_group("gloo", f"file://{path}/store", rank=rank, world_size=2)
    view = torch.arange(1_000_000)[rank : rank + 3]
    torch.save(exchanged([(rank, "to 0", view), (rank, "to 1", None)]), f"{path}/{rank}.pt")
    distributed.destroy_process_group()


def test_objects_between_processes(tmp_path):
    call_in_ranks(_exchange, tmp_path, 2)
    at = [torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(2)]
    assert [(source, text) for source, text, _ in at[0]] == [(0, "to 0"), (1, "to 0")]
    assert at[1] == [(0, "to 1", None), (1, "to 1", None)]
    assert [view.tolist() for _, _, view in at[0]] == [[0, 1, 2], [1, 2, 3]]
    assert all(view.untyped_storage().nbytes() == 24 for _, _, view in at[0])  # not what it was a view of


def test_a_single_process_sends_nothing():
    thing = object()
    assert exchanged([[thing]]) == [[thing]]
