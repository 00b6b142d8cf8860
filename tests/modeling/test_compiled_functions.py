"""Functions compiled once for all sizes, in which some dimensions are constants."""

import pytest
import torch
from torch import Tensor, fx

from ngrpo.modeling import compiled
from ngrpo.modeling.compiled import compiled_for, fix


def double(tensor: Tensor) -> Tensor:
    return tensor * 2


def test_nothing_is_compiled_on_a_cpu():
    assert compiled_for(torch.zeros(2, 3), double, fixed=(1,)) is double


@pytest.mark.parametrize("fixed", [(), (1,)])
def test_the_compiler_sees_a_constant_where_a_size_never_changes(fixed: tuple[int, ...]):
    seen: list[tuple[bool, ...]] = []

    def backend(graph: fx.GraphModule, inputs: list[Tensor | int]) -> fx.GraphModule:
        values = [node.meta["example_value"] for node in graph.graph.find_nodes(op="placeholder")]
        (tensor,) = (value for value in values if isinstance(value, Tensor))
        seen.append(tuple(isinstance(size, int) for size in tensor.shape))
        return graph

    torch._dynamo.reset()
    function = torch.compile(double, dynamic=True, backend=backend)
    for rows in (5, 7, 11):
        tensor = torch.ones(rows, 17)
        fix(tensor, fixed)
        assert torch.equal(function(tensor), torch.full((rows, 17), 2.0))
    assert seen == [(False, bool(fixed))]


def test_on_a_gpu_it_is_compiled_with_its_constants(monkeypatch: pytest.MonkeyPatch):
    fixed: list[int] = []

    class OnGpu:
        is_cuda = True

    monkeypatch.setattr(torch._dynamo, "mark_static", lambda tensor, dimension: fixed.append(dimension))
    monkeypatch.setattr(compiled, "_compiled", lambda function: ("compiled", function))
    assert compiled_for(OnGpu(), double, fixed=(1,)) == ("compiled", double)  # type: ignore[arg-type]
    assert fixed == [1]
