"""Weights that are moved on are others, in another order, and come back exactly."""

import pytest
import torch
from torch import nn

from ngrpo.engine_check.rolled_weights import rolled


def test_every_number_moves_to_the_next_place_and_back():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[1].weight.data = model[1].weight.data.bfloat16()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    places = [parameter.data_ptr() for parameter in model.parameters()]

    def use() -> None:
        with rolled(model):
            for parameter, was in zip(model.parameters(), before, strict=True):
                assert parameter.flatten()[1:].equal(was.flatten()[:-1])
                assert parameter.flatten()[0] == was.flatten()[-1]
            raise KeyError

    with pytest.raises(KeyError):  # whatever happens meanwhile
        use()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))
    assert [parameter.data_ptr() for parameter in model.parameters()] == places


def test_a_tied_tensor_moves_once():
    model = nn.Sequential(nn.Embedding(4, 2), nn.Linear(2, 4, bias=False))
    model[1].weight = model[0].weight
    before = model[0].weight.detach().clone()
    with rolled(model):
        assert model[0].weight.flatten()[1:].equal(before.flatten()[:-1])
    assert torch.equal(model[0].weight, before)
