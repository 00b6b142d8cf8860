"""Compiled and checkpointed layers compute what plain ones compute."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from made_rollouts import rollout
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode

from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.layers import CHECKPOINTING, prepare_layers
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.packing import PackedBatch, pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.precision import computing_in

LENGTHS = [[(3, 4), (5, 6)], [(2, 3)], [(3, 9), (4, 5), (6, 7)], [(2, 10), (2, 3)], [(7, 8)] * 5]
"""Of prompt and response of each sequence, batch by batch."""


def packed(lengths: Sequence[tuple[int, int]]) -> PackedBatch:
    return pack([rollout(range(5, 5 + p), [7] * r, {p: {20: 0.75, 21: 0.25}}) for p, r in lengths])


def model(source: ModelSource, checkpointing: str = "off", compiled: bool = False) -> ScoringModel:
    made = ScoringModel(source.load()).train()
    prepare_layers(made.lm.base_model.layers, checkpointing, compiled)
    return made


def scored(policy: ScoringModel, batch: PackedBatch) -> tuple[Tensor, dict[str, Tensor]]:
    policy.zero_grad()
    scores = policy(batch, 0.8, NeighborMixing())
    (scores.log_prob * torch.linspace(-1, 1, len(scores.log_prob))).sum().backward()
    return scores.log_prob.detach(), {name: p.grad.clone() for name, p in policy.named_parameters()}


def assert_same(ours: tuple[Tensor, dict[str, Tensor]], theirs: tuple[Tensor, dict[str, Tensor]]) -> None:
    torch.testing.assert_close(ours[0], theirs[0], atol=1e-5, rtol=0)
    assert ours[1].keys() == theirs[1].keys()
    difference = sum(float((ours[1][n] - theirs[1][n]).double().square().sum()) for n in ours[1])
    assert difference < 1e-10 * sum(float(g.double().square().sum()) for g in theirs[1].values())


@pytest.mark.parametrize("checkpointing", list(CHECKPOINTING))
def test_checkpointing_changes_nothing(tiny_source: ModelSource, checkpointing: str):
    batch = packed(LENGTHS[0])
    assert_same(scored(model(tiny_source, checkpointing), batch), scored(model(tiny_source), batch))


class CountProducts(TorchDispatchMode):
    """Counts matrix products and attention calls."""

    def __init__(self) -> None:
        super().__init__()
        self.products = self.attentions = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().split(".")[0]
        self.products += name in ("aten::mm", "aten::addmm")
        self.attentions += "attention" in name and "backward" not in name
        return func(*args, **(kwargs or {}))


def counted(source: ModelSource, checkpointing: str) -> tuple[int, int]:
    policy, batch = model(source, checkpointing), packed(LENGTHS[0])
    with CountProducts() as count:
        scored(policy, batch)
    return count.products, count.attentions


def test_what_each_mode_makes_again(tiny_source: ModelSource):
    """Two layers of seven products; two sequences' attention each."""
    products, attentions = counted(tiny_source, "off")
    assert attentions == 2 * 2
    assert counted(tiny_source, "selective") == (products, attentions)
    again, attended = counted(tiny_source, "full")
    assert 2 * 6 <= again - products <= 2 * 7  # the last product's output is needed by nothing
    assert attended == 2 * attentions


@pytest.mark.parametrize("checkpointing", list(CHECKPOINTING))
def test_many_lengths_are_compiled_once(tiny_source: ModelSource, checkpointing: str, monkeypatch):
    """Scoring has no gradient, which makes a graph of its own: two."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True))
    torch._dynamo.reset()
    counters.clear()
    plain, compiled = model(tiny_source), model(tiny_source, checkpointing, compiled=True)
    graphs = []
    for lengths in LENGTHS:
        batch = packed(lengths)
        assert_same(scored(compiled, batch), scored(plain, batch))
        with torch.no_grad():
            compiled(batch, 0.8, NeighborMixing())
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs == [2] * len(LENGTHS)
    torch._dynamo.reset()


def held(policy: ScoringModel, batch: PackedBatch) -> int:
    """Returns the elements that the backward pass needs, what it makes again itself left out, and weights too."""
    sizes: dict[int, int] = {}
    weights = {p.untyped_storage().data_ptr() for p in policy.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        scores = policy(batch, 0.8, NeighborMixing())
    assert scores.log_prob.requires_grad
    return sum(sizes.values())


def test_a_compiled_layer_is_made_again_as_a_whole(tiny_source: ModelSource, monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True))
    torch._dynamo.reset()
    batch = packed([(20, 40)] * 4)
    everything, inputs = (held(model(tiny_source, mode, compiled=True), batch) for mode in ("off", "full"))
    assert inputs < held(model(tiny_source, "full"), batch) * 1.1
    assert inputs < everything / 3
    torch._dynamo.reset()


@pytest.mark.parametrize("checkpointing", list(CHECKPOINTING))
def test_numbers_of_a_layer_are_constants_of_its_graphs(tiny_source: ModelSource, checkpointing: str):
    """Else the epsilons of its norms were CPU tensors on a GPU, and code for a CPU would be compiled."""
    scalars: list[int] = []

    def look(graph: fx.GraphModule, inputs: Sequence[Tensor | int]) -> Callable[..., Any]:
        values = [node.meta.get("val") for node in graph.graph.nodes]
        scalars.append(sum(isinstance(value, Tensor) and value.dim() == 0 for value in values))
        return graph.forward

    torch._dynamo.reset()
    policy = ScoringModel(tiny_source.load()).train()
    prepare_layers(policy.lm.base_model.layers, checkpointing, compiled=True, backend=aot_autograd(fw_compiler=look))
    scored(policy, packed(LENGTHS[0]))
    assert scalars == [0, 0]
    torch._dynamo.reset()


@pytest.mark.slow
def test_code_of_the_compiler_changes_nothing(tiny_source: ModelSource):
    torch._dynamo.reset()
    plain, compiled = model(tiny_source), model(tiny_source, "selective", compiled=True)
    for lengths in LENGTHS:
        assert_same(scored(compiled, packed(lengths)), scored(plain, packed(lengths)))


@pytest.mark.gpu
@pytest.mark.parametrize("checkpointing", list(CHECKPOINTING))
def test_on_a_gpu_bfloat16_is_near_float32_and_many_lengths_are_compiled_once(
    tiny_source: ModelSource, checkpointing: str
):
    """One kernel over the packed row, whose head size must be a multiple of 8."""
    torch._dynamo.reset()
    counters.clear()
    exact, half = model(tiny_source), model(tiny_source, checkpointing, compiled=True).cuda()
    graphs = []
    for lengths in LENGTHS:
        batch = packed(lengths)
        expected, gradient = scored(exact, batch)
        half.zero_grad()
        with computing_in(half, torch.bfloat16):
            scores = half(batch.to(torch.device("cuda")), 0.8, NeighborMixing())
            (scores.log_prob * torch.linspace(-1, 1, len(scores.log_prob), device="cuda")).sum().backward()
        torch.testing.assert_close(scores.log_prob.detach().cpu(), expected, atol=0.2, rtol=0.02)
        made = {name: p.grad.cpu() for name, p in half.named_parameters()}
        difference = sum(float((made[n] - gradient[n]).square().sum()) for n in made)
        assert difference < 0.1**2 * sum(float(g.square().sum()) for g in gradient.values())
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[1:] == [graphs[1]] * (len(LENGTHS) - 1)
