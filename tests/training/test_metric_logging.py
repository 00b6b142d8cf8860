"""Means and extremes over ranks that hold unequal numbers of values."""

import math

import pytest
import torch
from fake_run import on_ranks

from ngrpo.training.metric_logging import log_extreme, log_means

VALUES = [
    {"even": torch.tensor([[1.0, 2.0]]), "uneven": torch.tensor([1.0, math.nan, 5.0]), "here": torch.zeros(0)},
    {"even": torch.tensor([3, 6]), "uneven": torch.tensor([0.0]), "here": torch.tensor([True, False])},
]


def test_means_are_those_of_all_values():
    logged = on_ranks(lambda trainer, module, rank: log_means(trainer, module, VALUES[rank]), 2)
    assert logged[0] == logged[1] == {"even": 3.0, "uneven": 2.0, "here": 0.5}


def test_a_tag_without_any_value_is_not_logged():
    values = {"none": torch.zeros(0), "nan": torch.full((2, 2), math.nan), "one": torch.tensor(4.0)}
    assert on_ranks(lambda trainer, module, _: log_means(trainer, module, values), 1) == [{"one": 4.0}]


@pytest.mark.parametrize(("op", "expected"), [("max", 7.0), ("min", -2.0)])
def test_extremes_are_those_of_all_values(op: str, expected: float):
    values = [torch.tensor([3.0, 7.0]), torch.zeros(0), torch.tensor([[-2.0]])]
    logged = on_ranks(lambda trainer, module, rank: log_extreme(trainer, module, "tag", values[rank], op), 3)
    assert logged == [{"tag": expected}] * 3


@pytest.mark.parametrize("op", ["max", "min"])
def test_no_values_no_extreme(op: str):
    assert on_ranks(lambda t, module, _: log_extreme(t, module, "tag", torch.zeros(0), op), 2) == [{}, {}]
