"""Logits at a temperature are float32, and a temperature of one changes no bit of them."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from ngrpo.utils.tempered import tempered


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("temperature", [1.0, 1, 0.7, 2.0])
def test_logits_are_divided_in_float32(dtype: torch.dtype, temperature: float) -> None:
    logits = 9 * torch.randn(4, 33, generator=torch.Generator().manual_seed(0)).to(dtype)
    made = tempered(logits, temperature)
    assert made.dtype == torch.float32
    assert torch.equal(made, logits.float() / temperature)


def test_at_a_temperature_of_one_nothing_is_computed() -> None:
    logits = torch.randn(4, 33)
    assert tempered(logits, 1.0) is logits
    assert tempered(logits, 0.7) is not logits


def test_one_and_all_other_temperatures_are_compiled_once_each() -> None:
    counter = CompileCounter()
    run = torch.compile(tempered, backend=counter, fullgraph=True, dynamic=True)
    logits = torch.randn(4, 33)
    for temperature in (0.7, 1.0, 0.9, 1.0, 0.8, 1.3):
        assert torch.equal(run(logits, temperature), logits / temperature)
    assert counter.frame_count <= 2
