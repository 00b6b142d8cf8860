"""What a call writes into is named, whether PyTorch counts it or not."""

import pytest
import torch
from torch import Tensor

from ngrpo.utils import written_tensors
from ngrpo.utils.written_tensors import watch


def made() -> dict[str, Tensor]:
    numbers = torch.tensor([1.0, torch.nan, -torch.inf])
    return {"numbers": numbers, "flags": torch.tensor([True]), "none": torch.zeros(0), "learned": torch.ones(2)}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_what_is_written_into_is_named(mode: type) -> None:
    with mode():
        tensors = made()
        written = watch(tensors)
        tensors["numbers"].add(1.0).mul_(2.0)
        assert written() == []
        tensors["flags"].data.logical_not_()
        tensors["numbers"][0] = torch.nan
        assert written() == ["numbers", "flags"]


def test_a_write_that_changes_nothing_is_counted() -> None:
    tensors = made()
    written = watch(tensors)
    tensors["learned"].view(2, 1).clamp_(max=5.0)
    assert written() == ["learned"]


def test_large_tensors_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_tensors, "_COPIED_BYTES", 8)
    tensors = made()
    written = watch(tensors)
    tensors["learned"].data.zero_()
    tensors["numbers"].data.zero_()
    assert written() == ["learned"]
    tensors["numbers"].zero_()
    assert written() == ["numbers", "learned"]
