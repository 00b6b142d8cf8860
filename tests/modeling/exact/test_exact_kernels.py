"""The Triton kernels against plain PyTorch, and against themselves with other rows beside: run by Triton's interpreter.

``TRITON_INTERPRET=1 pytest tests/modeling/exact/test_exact_kernels.py``, or on a GPU without it.
"""

import importlib.util
import os

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention

CUDA = torch.cuda.is_available()
if importlib.util.find_spec("triton") is None or not (CUDA or os.environ.get("TRITON_INTERPRET") == "1"):
    pytest.skip("needs a GPU, or Triton with TRITON_INTERPRET=1", allow_module_level=True)

from ngrpo.modeling.exact.kernels import attention, products, rows  # noqa: E402

DEVICE = "cuda" if CUDA else "cpu"
HALF = torch.bfloat16 if CUDA else torch.float16  # the interpreter has no bfloat16


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator).to(DEVICE, dtype)


def assert_same(made: Tensor, other: Tensor) -> None:
    """Bit for bit on a GPU; the interpreter multiplies by NumPy, whose sums depend on a row's place."""
    if CUDA:
        assert torch.equal(made, other)
    else:
        exact = made.dtype == torch.float32
        torch.testing.assert_close(made, other, atol=1e-5 if exact else 0.1, rtol=1e-5 if exact else 0.02)


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize("biased", [True, False])
def test_linear(dtype: torch.dtype, biased: bool) -> None:
    inputs, weight = random(131, 200, dtype=dtype), random(90, 200, dtype=dtype)
    bias = random(90, dtype=dtype) if biased else None
    made = products.linear(inputs, weight, bias)
    expected = linear(inputs.double(), weight.double(), None if bias is None else bias.double())
    torch.testing.assert_close(made.double(), expected, atol=1e-4 if dtype == torch.float32 else 0.1, rtol=1e-2)
    for few in (1, 2, 33, 64, 65):
        assert_same(products.linear(inputs[-few:].contiguous(), weight, bias), made[-few:])


@pytest.mark.parametrize(
    ("dtype", "tiles"),
    [
        (HALF, products.FEW_ROWS),
        (HALF, products.FEW_ROWS_WIDE),
        (torch.float32, products.SINGLE_FEW_ROWS),
    ],
)
def test_tiles_do_not_change_a_sum(dtype: torch.dtype, tiles: products.Tiles) -> None:
    inputs, weight = random(96, 256, dtype=dtype), random(64, 256, dtype=dtype)
    usual = products.MANY_ROWS if dtype == HALF else products.SINGLE
    assert_same(products.linear(inputs, weight, None, tiles), products.linear(inputs, weight, None, usual))


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_rms_norm(dtype: torch.dtype) -> None:
    inputs, weight = random(5, 96, dtype=dtype), random(96, dtype=dtype)
    made = rows.rms_norm(inputs, weight, 1e-6)
    expected = torch.nn.functional.rms_norm(inputs.double(), (96,), weight.double(), 1e-6)
    torch.testing.assert_close(made.double(), expected, atol=1e-5 if dtype == torch.float32 else 0.05, rtol=1e-2)
    assert_same(rows.rms_norm(inputs[3:4].contiguous(), weight, 1e-6), made[3:4])


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_token_scores(dtype: torch.dtype) -> None:
    logits, tokens = 4 * random(3, 5000, dtype=dtype), torch.tensor([7, 4999, 0], device=DEVICE)
    log_probs, entropies, normalisers = rows.token_scores(logits, tokens, 0.7)
    expected = (logits.double() / 0.7).log_softmax(-1)
    torch.testing.assert_close(log_probs.double(), expected.gather(-1, tokens[:, None])[:, 0], atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(entropies.double(), -(expected.exp() * expected).sum(-1), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(normalisers.double(), (logits.double() / 0.7).logsumexp(-1), atol=1e-4, rtol=1e-5)
    assert_same(rows.token_scores(logits[1:2].contiguous(), tokens[1:2], 0.7)[0], log_probs[1:2])


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize("size", [32, 24])
def test_attention(dtype: torch.dtype, size: int) -> None:
    lengths, heads, key_heads = [70, 1, 33], 6, 2
    tokens = sum(lengths)
    starts = torch.tensor([0, 70, 71, 104], dtype=torch.int32, device=DEVICE)
    query, key, value = (
        random(tokens, h, size + s, dtype=dtype)[..., :size].transpose(0, 1)
        for h, s in ((heads, 0), (key_heads, 1), (key_heads, 2))
    )
    made = attention.packed(query, key, value, starts, max(lengths), 0.3)
    cache = torch.zeros(2, 4, key_heads, 100, size, dtype=dtype, device=DEVICE)
    for slot, (first, length) in enumerate(zip(starts.tolist(), lengths, strict=False)):
        at = slice(first, first + length)
        parts = (part[:, at].double() for part in (query, key, value))
        q, k, v = (part.repeat_interleave(heads // part.shape[0], 0) for part in parts)
        expected = scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
        torch.testing.assert_close(
            made[:, at].double(), expected, atol=1e-5 if dtype == torch.float32 else 0.03, rtol=1e-2
        )
        cache[0, slot, :, :length], cache[1, slot, :, :length] = key[:, at], value[:, at]
    last = (starts[1:] - 1).long()
    positions = torch.tensor(lengths, device=DEVICE) - 1
    assert_same(attention.decode(query[:, last], *cache, positions, 0.3), made[:, last])
    back = torch.arange(5, device=DEVICE)
    earlier, place = last[:1] - back[-1], positions[:1] - back[-1]
    assert_same(attention.decode(query[:, earlier], *cache, place, 0.3), made[:, earlier])
