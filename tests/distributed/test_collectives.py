"""Which processes hear each other, on a mesh of two data ranks by two tensor ranks."""

from pathlib import Path

import torch
from forked import call_in_ranks
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh

from ngrpo.distributed.collectives import (
    SINGLE_PROCESS,
    exchanged,
    from_first,
    gathered,
    gathered_everywhere,
    ranks,
    set_device_mesh,
)


def _talk(rank: int, path: str) -> None:
    distributed.init_process_group("gloo", f"file://{path}/store", rank=rank, world_size=4)
    before = ranks().data_rank, ranks().data_size, ranks().first
    set_device_mesh(init_device_mesh("cpu", (2, 2), mesh_dim_names=("data_parallel", "tensor_parallel")))
    place, calls = ranks(), []

    def make() -> tuple[int, torch.Tensor]:
        calls.append(rank)
        return rank, torch.arange(1000)[rank : rank + 2]

    heard = {
        "before": before,
        "place": (place.data_rank, place.data_size, place.tensor_rank, place.tensor_size, place.first),
        "gathered": gathered(rank),
        "everywhere": gathered_everywhere(rank),
        "exchanged": exchanged([(rank, to) for to in range(2)]),
        "from_first": [from_first(make), from_first(lambda: None)],
        "calls": calls,
    }
    torch.save(heard, f"{path}/{rank}.pt")
    distributed.destroy_process_group()


def test_a_mesh_of_two_by_two(tmp_path: Path):
    call_in_ranks(_talk, tmp_path, 4)
    heard = [torch.load(tmp_path / f"{rank}.pt") for rank in range(4)]
    assert [h["before"] for h in heard] == [(rank, 4, True) for rank in range(4)]
    assert [h["place"] for h in heard] == [
        (0, 2, 0, 2, True), (0, 2, 1, 2, False), (1, 2, 0, 2, True), (1, 2, 1, 2, False),
    ]  # fmt: skip
    assert [h["gathered"] for h in heard] == [[0, 2], [1, 3], [0, 2], [1, 3]]
    assert [h["everywhere"] for h in heard] == [[0, 1, 2, 3]] * 4
    assert [h["exchanged"] for h in heard] == [[(0, 0), (2, 0)], [(1, 0), (3, 0)], [(0, 1), (2, 1)], [(1, 1), (3, 1)]]
    assert [h["from_first"][0][0] for h in heard] == [0, 0, 2, 2]
    assert [h["from_first"][0][1].tolist() for h in heard] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert [h["from_first"][1] for h in heard] == [None] * 4
    assert [h["calls"] for h in heard] == [[0], [], [2], []]


def test_a_process_alone_is_its_own_first():
    set_device_mesh(None)
    assert ranks() == SINGLE_PROCESS
    assert ranks().first
    assert gathered("own") == gathered_everywhere("own") == ["own"]
    assert from_first(lambda: "made") == "made"
