"""cuDNN's attention, its kernels replaced by attention by segment: what they are given, and when they are used."""

import logging

import pytest
import torch
from torch import Tensor

from ngrpo.modeling import cudnn_attention as module
from ngrpo.modeling import varlen
from ngrpo.modeling.attention import PackedAttention
from ngrpo.modeling.cudnn_attention import attention_on, cudnn_attention, cudnn_packed_attention
from ngrpo.modeling.varlen import packed_attention, segment_attention, segment_attention_backward

STARTS = torch.tensor([0, 5, 6, 13], dtype=torch.int32)
GPU = torch.device("cuda", 0)


class Kernels:
    """Takes the places of cuDNN's plans; keeps what they were built for."""

    def __init__(self) -> None:
        self.built: list[tuple[object, ...]] = []

    def plan(self, *key):
        self.built.append(key)
        return self, {name: name for name in (*"qkvo", "do", "dq", "dk", "dv", "stats", *BOUNDS)}

    def get_workspace_size(self) -> int:
        return 0

    def execute(self, given: dict[str, Tensor], workspace: Tensor, handle: object) -> None:
        assert len(workspace) == 1
        assert all(part.is_contiguous() for part in given.values())
        rows = [given[name].transpose(0, 1)[None] for name in "qkv"]
        width, scale = given["q"].shape[2], self.built[-1][-1]
        for name, part in (("queries", "q"), ("keys", "k")):
            assert torch.equal(given[name], STARTS * given[part].shape[1] * width)
        assert torch.equal(given["lengths"], STARTS.diff())
        if self.built[-1][0] == "forward":
            given["o"].copy_(varlen._by_segment(*rows, STARTS, scale)[0].transpose(0, 1))
            given["stats"].fill_(7.0)
        else:
            assert (given["stats"] == 7.0).all()
            made = segment_attention_backward(given["do"].transpose(0, 1)[None], *rows, STARTS, scale)
            for name, gradient in zip(("dq", "dk", "dv"), made, strict=True):
                given[name].copy_(gradient[0].transpose(0, 1))


BOUNDS = ("queries", "keys", "lengths", "key_lengths")


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Kernels:
    made = Kernels()
    monkeypatch.setattr(module, "_plan", made.plan)
    monkeypatch.setattr(module, "_handle", lambda device: None)
    return made


def parts(heads: int, shared: int, dtype: torch.dtype = torch.bfloat16, width: int = 8) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, n, 13, width) for n in (heads, shared, shared)]
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("heads", "shared"), [(4, 4), (4, 2), (6, 1)])
def test_rows_bounds_and_gradients_reach_their_places(kernels: Kernels, heads: int, shared: int, compiled: bool):
    inputs = parts(heads, shared)
    attend = cudnn_packed_attention
    if compiled:
        attend = torch.compile(attend, dynamic=True, fullgraph=True, backend="aot_eager")
    made = attend(*inputs, STARTS, 7, 0.3)
    expected = segment_attention(*inputs, STARTS, 0.3)
    torch.testing.assert_close(made, expected)
    weights = torch.linspace(-1, 1, made.numel()).view_as(made).to(made.dtype)
    wanted = torch.autograd.grad(expected, inputs, weights)
    torch.testing.assert_close(torch.autograd.grad(made, inputs, weights), wanted)
    place = (torch.device("cpu"), 3, 1024, heads, shared, 8, 0.3)
    assert kernels.built == [("forward", *place), ("backward", *place)]


def test_plans_are_few(kernels: Kernels):
    for longest in (1, 1024, 1025):
        cudnn_packed_attention(*parts(2, 1), STARTS, longest, 0.3)
    assert [key[3] for key in kernels.built] == [1024, 1024, 2048]


def test_the_operator_is_one_to_the_compiler(kernels: Kernels):
    rows = [part.detach()[0].transpose(0, 1).requires_grad_() for part in parts(4, 2)]
    torch.library.opcheck(cudnn_attention, (*rows, STARTS, 7, 0.3))


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 8), (torch.bfloat16, 12), (torch.bfloat16, 136)])
def test_other_numbers_are_left_to_pytorch(kernels: Kernels, dtype: torch.dtype, width: int):
    inputs = parts(4, 2, dtype, width)
    made = cudnn_packed_attention(*inputs, STARTS, 7, 0.3)
    assert torch.equal(made, packed_attention(*inputs, STARTS, 7, 0.3))
    assert kernels.built == []


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU on which cuDNN computes what it should, its frontend installed."""
    module._usable.cache_clear()
    monkeypatch.setattr(varlen, "_FLASH_ATTN", None)
    monkeypatch.setattr(module, "installed", lambda package: package == "cudnn")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(module, "_distance", lambda device: 0.003)


@pytest.mark.usefixtures("hopper")
def test_it_is_used_where_it_was_measured(monkeypatch: pytest.MonkeyPatch):
    assert attention_on(GPU) is cudnn_packed_attention
    assert attention_on(torch.device("cpu")) is packed_attention
    assert PackedAttention([2, 3], torch.device("cpu")).kernel is packed_attention
    for name, value in (("installed", lambda package: False), ("_distance", lambda device: 0.5)):
        module._usable.cache_clear()
        with monkeypatch.context() as changed:
            changed.setattr(module, name, value)
            assert attention_on(GPU) is packed_attention
    for owner, name, value in ((varlen, "_FLASH_ATTN", print), (torch.cuda, "get_device_capability", lambda _: (8, 0))):
        module._usable.cache_clear()
        with monkeypatch.context() as changed:
            changed.setattr(owner, name, value)
            assert attention_on(GPU) is packed_attention
    module._usable.cache_clear()


@pytest.mark.usefixtures("hopper")
def test_an_attention_that_fails_or_is_off_is_named_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def fails(device: torch.device) -> float:
        raise RuntimeError("No valid engine configs\nfor the graph")

    for distance, message in (
        (fails, "cuDNN's attention fails, and PyTorch's is used (No valid engine configs)"),
        (lambda device: 0.25, "cuDNN's attention is off by 2.5e-01, and PyTorch's is used"),
    ):
        module._usable.cache_clear()
        caplog.clear()
        monkeypatch.setattr(module, "_distance", distance)
        with caplog.at_level(logging.WARNING):
            assert [attention_on(GPU) for _ in range(2)] == [packed_attention] * 2
        assert caplog.messages == [message]
    module._usable.cache_clear()


@pytest.mark.parametrize("change", [1.0, 1.5])
def test_the_comparison_at_the_start_sees_wrong_numbers(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch, change: float
):
    monkeypatch.setattr(
        module,
        "cudnn_packed_attention",
        lambda query, key, value, starts, longest, scale: packed_attention(
            query, key, value, starts, longest, scale * change
        ),
    )
    assert (module._distance(torch.device("cpu")) < module._NEAR) == (change == 1.0)


@pytest.mark.gpu
@pytest.mark.skipif(not module.installed("cudnn"), reason="needs cuDNN's Python frontend")
def test_on_a_gpu_it_is_near_attention_in_float32():
    assert module._distance(GPU) < 0.01
