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
from ngrpo.training.load_balancing import LoadBalance, assign_ranks


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


@pytest.mark.parametrize(("ranks", "count", "minibatches"), [(1, 6, 2), (2, 6, 1), (2, 6, 3), (4, 12, 3)])
def test_gather_is_the_inverse_of_scatter(ranks: int, count: int, minibatches: int, monkeypatch: pytest.MonkeyPatch):
    pick = random.Random(1)
    costs = [[pick.uniform(1, 100) for _ in range(count)] for _ in range(ranks)]
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
        loads = [sum(costs[r][i] for r, i in part[minibatch * size : (minibatch + 1) * size]) for part in held]
        assert max(loads) - min(loads) <= 100


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
