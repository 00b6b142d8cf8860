import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torchmetrics import Metric

from ngrpo.evaluation.estimators import pass_at_k
from ngrpo.evaluation.metrics import MeanAtK, PassAtK

GENERATOR = torch.Generator().manual_seed(0)
CORRECT = torch.rand(9, 8, generator=GENERATOR) < torch.linspace(0, 1, 9)[:, None]


class Gather:
    """An all-gather between threads that stand for processes."""

    def __init__(self, world_size: int) -> None:
        self.slots: list[torch.Tensor | None] = [None] * world_size
        self.barrier = threading.Barrier(world_size)

    def bind(self, rank: int) -> dict[str, Any]:
        def gather(value: torch.Tensor, group: Any = None) -> list[torch.Tensor | None]:
            self.slots[rank] = value.clone()
            self.barrier.wait(timeout=10)
            gathered = list(self.slots)
            self.barrier.wait(timeout=10)
            return gathered

        return {"dist_sync_fn": gather, "distributed_available_fn": lambda: True}


def compute_on_two_processes(build: Any, parts: list[list[torch.Tensor]]) -> list[Any]:
    gather = Gather(2)

    def process(rank: int) -> Any:
        metric: Metric = build(**gather.bind(rank))
        for part in parts[rank]:
            metric.update(part)
        return metric.compute()

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(process, range(2)))


def test_pass_at_k_is_the_mean_of_the_estimates() -> None:
    metric = PassAtK(ks=(1, 4, 8))
    metric.update(CORRECT[:2])
    metric.update(CORRECT[2:])
    for k in (1, 4, 8):
        slow = sum(pass_at_k(8, int(row.sum()), k).item() for row in CORRECT) / len(CORRECT)
        assert metric.compute()[f"pass@{k}"].item() == pytest.approx(slow, abs=1e-12)


def test_pass_at_k_over_two_processes_of_unequal_size() -> None:
    alone = PassAtK(ks=(1, 4, 8))
    alone.update(CORRECT)
    expected = {name: value.item() for name, value in alone.compute().items()}
    parts = [[CORRECT[:2]], [CORRECT[2:5], CORRECT[5:]]]
    for found in compute_on_two_processes(lambda **kwargs: PassAtK((1, 4, 8), **kwargs), parts):
        assert {name: value.item() for name, value in found.items()} == pytest.approx(expected, abs=1e-12)


def test_mean_at_k_over_two_processes_of_unequal_size() -> None:
    expected = CORRECT.double().mean().item()
    parts = [[CORRECT[:1]], [CORRECT[1:3], CORRECT[3:]]]
    for found in compute_on_two_processes(MeanAtK, parts):
        assert found.item() == pytest.approx(expected, abs=1e-12)


def test_mean_at_k_weighs_problems_equally_whatever_their_samples() -> None:
    metric = MeanAtK()
    metric.update(torch.tensor([[1.0, 1.0, 1.0, 1.0]]))
    metric.update(torch.tensor([[0.0, 0.5]]))
    assert metric.compute().item() == pytest.approx((1.0 + 0.25) / 2)


def test_mean_at_k_leaves_out_the_unscored() -> None:
    metric = MeanAtK()
    metric.update(torch.tensor([[1.0, math.nan, 0.0], [math.nan] * 3, [1.0, 1.0, 1.0]]))
    assert metric.compute().item() == pytest.approx(0.75)


def test_reset_forgets() -> None:
    metric = PassAtK(ks=(1,))
    metric.update(torch.ones(3, 2, dtype=torch.bool))
    metric.reset()
    metric.update(torch.zeros(3, 2, dtype=torch.bool))
    assert metric.compute()["pass@1"].item() == 0.0


def test_k_beyond_the_samples_is_refused_and_leaves_the_state_alone() -> None:
    metric = PassAtK(ks=(1, 16))
    with pytest.raises(ValueError, match="pass@16 .* n=8"):
        metric.update(CORRECT)
    assert metric.problems.item() == 0


@pytest.mark.parametrize("ks", [(), (0, 1)])
def test_bad_ks_are_refused(ks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="ks must be one or more integers"):
        PassAtK(ks)
