"""Attention of one new token a row, by the kernel that reads what each slot holds and by the masked one."""

import pytest
import torch
from torch import Tensor

from ngrpo.rollout.torch_engine import kv_cache
from ngrpo.rollout.torch_engine.kv_cache import _attend, _attend_flash, slot_flash_attention

ROWS, HEADS, KEY_HEADS, LENGTH, SIZE = 5, 6, 2, 300, 16


def by_hand(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, used: Tensor, longest: int, scale: float
) -> Tensor:
    """What the kernel promises, one sequence after the other."""
    assert int(used.max()) <= longest
    made = torch.empty_like(query)
    for row, (first, count) in enumerate(zip(starts[1].tolist(), used.tolist(), strict=False)):
        assert starts[0, row] == row
        for head in range(query.shape[1]):
            shared = head * key.shape[1] // query.shape[1]
            keys, values = key[first : first + count, shared], value[first : first + count, shared]
            made[row, head] = (keys @ query[row, head] * scale).softmax(0) @ values
    return made


def new_tokens(device: str = "cpu", dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Queries, keys and values of new tokens, two equal caches of one layer, positions and starts."""
    torch.manual_seed(0)
    query = torch.randn(ROWS, HEADS, 1, SIZE)
    key, value = torch.randn(2, ROWS, KEY_HEADS, 1, SIZE)
    cache = torch.randn(1, 2, ROWS + 2, KEY_HEADS, LENGTH, SIZE)
    made = [part.to(device, dtype) for part in (query, key, value, cache, cache.clone())]
    positions = torch.tensor([0, 7, 299, 128, 255], device=device)
    rows = torch.arange(ROWS + 1, dtype=torch.int32, device=device)
    return (*made, positions, torch.stack((rows, rows * KEY_HEADS * LENGTH)))


def compared(device: str = "cpu", dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    query, key, value, one, other, positions, starts = new_tokens(device, dtype)
    visible = (torch.arange(LENGTH, device=device) <= positions[:, None])[:, None, None, :]
    expected = _attend(query, key, value, one[0], positions, visible, 0.3)
    made = _attend_flash(query, key, value, other[0], positions, starts, LENGTH, 0.3)
    assert one.equal(other)
    return made, expected


def test_the_kernel_is_shown_each_slot_as_a_sequence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kv_cache, "packed_decode", by_hand)
    torch.testing.assert_close(*compared(), atol=1e-5, rtol=1e-5)


def test_the_operator_is_what_it_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kv_cache, "packed_decode", by_hand)
    query, key, value, cache, _, positions, starts = new_tokens()
    arguments = (query, key, value, cache, torch.tensor(0), positions, starts, LENGTH, 0.3)
    torch.library.opcheck(slot_flash_attention, arguments)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_on_a_gpu_the_kernel_attends_as_the_masked_one(dtype: torch.dtype):
    torch.testing.assert_close(*compared("cuda", dtype), atol=2e-2, rtol=2e-2)
