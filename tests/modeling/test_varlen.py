"""The packed attention as one operator, and the adapter to the GPU's kernels."""

from typing import Any

import pytest
import torch
from torch import Tensor

from ngrpo.modeling import varlen
from ngrpo.modeling.varlen import packed_attention, padded_attention, segment_attention

STARTS = torch.tensor([0, 5, 6, 13], dtype=torch.int32)
SCALE = 0.3


def parts(heads: int, shared: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, n, 13, 8) for n in (heads, shared, shared)]
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize(("heads", "shared"), [(4, 4), (4, 2), (6, 1)])
def test_the_operator_has_values_and_gradients_of_attention_by_segment(heads: int, shared: int):
    inputs = parts(heads, shared)
    slow = packed_attention(*inputs, STARTS, 7, SCALE)
    fast = segment_attention(*inputs, STARTS, SCALE)
    torch.testing.assert_close(fast, slow)
    weights = torch.linspace(-1, 1, slow.numel(), dtype=slow.dtype).view_as(slow)
    expected = torch.autograd.grad((weights * slow).sum(), inputs)
    torch.testing.assert_close(torch.autograd.grad((weights * fast).sum(), inputs), expected)


@pytest.mark.parametrize(("heads", "shared"), [(4, 4), (4, 2), (6, 1)])
def test_padded_sequences_have_values_and_gradients_of_attention_by_segment(heads: int, shared: int):
    inputs = parts(heads, shared)
    slow = packed_attention(*inputs, STARTS, 7, SCALE)
    fast = padded_attention(*inputs, STARTS, 7, SCALE)
    torch.testing.assert_close(fast, slow)
    weights = torch.linspace(-1, 1, slow.numel(), dtype=slow.dtype).view_as(slow)
    expected = torch.autograd.grad((weights * slow).sum(), inputs)
    torch.testing.assert_close(torch.autograd.grad((weights * fast).sum(), inputs), expected)


def test_the_operator_is_one_to_the_compiler():
    torch.library.opcheck(segment_attention, (*parts(4, 2), STARTS, SCALE))


def kernel_of(torch_version: str, calls: list[dict[str, Any]]):
    """A stand-in for ``varlen_attn`` of a version, on tensors [N, H, D]."""

    def attend(query, key, value, starts, starts_too, longest, longest_too, *, scale, window_size, **more):
        calls.append({"heads": key.shape[1], "window": window_size, "longest": longest, **more})
        rows = (part.transpose(0, 1)[None] for part in (query, key, value))
        return packed_attention(*rows, starts, longest, scale)[0].transpose(0, 1)

    return attend


@pytest.mark.parametrize("options", [{"enable_gqa": True}, {}])
def test_the_adapter_shares_heads(monkeypatch, options: dict[str, bool]):
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(varlen, "_FLASH_ATTN", None)
    monkeypatch.setattr(varlen, "_VARLEN_ATTN", kernel_of("2.11", calls))
    monkeypatch.setattr(varlen, "_SHARES_HEADS", options)
    inputs = parts(4, 2)
    rows = (part[0].transpose(0, 1) for part in inputs)
    made = varlen._kernel(*rows, STARTS, 7, SCALE).transpose(0, 1)[None]
    torch.testing.assert_close(made, packed_attention(*inputs, STARTS, 7, SCALE))
    assert calls == [{"heads": 2, "window": (-1, 0), "longest": 7, **options}]


def test_this_torch_has_the_kernel_that_the_adapter_calls():
    """The arguments must bind; running needs a GPU."""
    import inspect

    signature = inspect.signature(varlen._VARLEN_ATTN)
    signature.bind(*(None,) * 7, scale=SCALE, window_size=(-1, 0), **varlen._SHARES_HEADS)


@pytest.mark.gpu
@pytest.mark.parametrize("shared", [4, 2])
def test_the_kernel_is_near_attention_by_segment(shared: int):
    """On the same rounded inputs; what is left is the rounding inside the kernel, and cancels nowhere in a norm."""
    generator = torch.Generator("cuda").manual_seed(0)
    shapes = [(1, n, 13, 64) for n in (4, shared, shared)]
    half = [torch.randn(shape, generator=generator, device="cuda").bfloat16().requires_grad_() for shape in shapes]
    exact = [part.detach().float().requires_grad_() for part in half]
    starts, scale = STARTS.cuda(), 64**-0.5
    outputs = [packed_attention(*inputs, starts, 7, scale) for inputs in (exact, half)]
    gradients = [torch.autograd.grad(o.square().sum(), i) for o, i in zip(outputs, (exact, half), strict=True)]
    for expected, made in zip((outputs[0], *gradients[0]), (outputs[1], *gradients[1]), strict=True):
        assert (made.float() - expected).norm() < 1e-2 * expected.norm()
