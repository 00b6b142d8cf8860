"""The gradient's norm over two meshes counts each parameter once; its parts are scaled by the whole norm."""

from pathlib import Path

import pytest
import torch
from forked import call_in_ranks
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

from ngrpo.training.optim.grad_norm import by_mesh, clip, total_norm


class Layer(nn.Module):
    """What a decoder layer has: split by columns and by rows, replicated in the group, and whole."""

    def __init__(self) -> None:
        super().__init__()
        self.columns = nn.Linear(6, 10)  # five on each of two ranks, which do not halve
        self.rows = nn.Linear(10, 6)
        self.replicated = nn.LayerNorm(6)
        self.whole = nn.LayerNorm(6)


def whole_gradient() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(p.shape, generator=generator) for name, p in Layer().named_parameters()}


def reference(gradient: dict[str, Tensor]) -> float:
    return sum(float(part.double().square().sum()) for part in gradient.values()) ** 0.5


def _clip(rank: int, path: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{path}/store", rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    layer, gradient = Layer(), whole_gradient()
    layer.load_state_dict(gradient)  # sharded like parameters, since that is how FSDP shards gradients
    plan = {"columns": ColwiseParallel(), "rows": RowwiseParallel(), "replicated": SequenceParallel()}
    parallelize_module(layer, mesh["tensor"], plan)
    fully_shard(layer, mesh=mesh["data"])
    for parameter in layer.parameters():
        parameter.grad = parameter.detach().clone()
    norms = [float(clip(layer.parameters(), limit)) for limit in (1e9, 1.5)]
    after = {name: p.grad.full_tensor() for name, p in layer.named_parameters() if isinstance(p.grad, DTensor)}
    groups = [[p.device_mesh.ndim for p in group] for group in by_mesh(layer.parameters())]
    if rank == 3:
        torch.save((norms, after, groups), f"{path}/found.pt")
    distributed.destroy_process_group()


def test_two_meshes(tmp_path: Path):
    call_in_ranks(_clip, tmp_path, 4)
    norms, after, groups = torch.load(tmp_path / "found.pt")
    gradient = whole_gradient()
    assert norms == pytest.approx([reference(gradient)] * 2, rel=1e-6)
    assert after.keys() == gradient.keys()
    for name, part in gradient.items():
        torch.testing.assert_close(after[name], part * 1.5 / reference(gradient), rtol=1e-5, atol=1e-7)
    assert groups == [[2] * 6, [1] * 2]


@pytest.mark.parametrize("limit", [1e-3, 1.0, 1e9])
def test_on_one_device_it_is_pytorchs(limit: float):
    layers = [Layer(), Layer()]
    for layer in layers:
        for name, part in whole_gradient().items():
            layer.get_parameter(name).grad = part.clone()
        layer.whole.bias.grad = None
    found, expected = clip(layers[0].parameters(), limit), nn.utils.clip_grad_norm_(layers[1].parameters(), limit)
    assert torch.equal(found, expected)
    for own, other in zip(layers[0].parameters(), layers[1].parameters(), strict=True):
        assert own.grad is other.grad or torch.equal(own.grad, other.grad)


def test_norms_of_groups_are_put_together():
    parts = list(whole_gradient().values())
    assert float(total_norm([parts[:3], parts[3:]])) == pytest.approx(reference(whole_gradient()), rel=1e-6)
    assert float(total_norm([])) == 0.0
