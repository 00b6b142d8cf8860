"""Whose fault an exception is."""

from collections.abc import Callable

import pytest
import torch

from ngrpo.exploration.base import Exploration, Step
from ngrpo.exploration.runtime.strategy_errors import from_strategy
from ngrpo.exploration.token import TokenSampling


class Broken(Exploration):
    """Fails with what it is given, in a function that it calls."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def step(self, logits, ctx):
        return Step.plain(torch.tensor([self.helper()]))

    def helper(self):
        raise self.error


def caught(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("error", "own"),
    [
        (KeyError("a typing error"), True),
        (RuntimeError("shapes do not match"), True),
        (torch.OutOfMemoryError("tried to allocate"), False),
        (RuntimeError("DefaultCPUAllocator: not enough memory"), False),
        (torch.AcceleratorError("CUDA error: unspecified launch failure"), False),
    ],
)
def test_what_comes_out_of_a_strategy_is_its_own_but_for_want_of_memory_and_device_faults(error, own):
    strategy = Broken(error)
    found = caught(lambda: strategy.step(None, None))
    assert found is error
    assert from_strategy(found, strategy) == own


def test_an_exception_beside_the_strategy_is_not_its_own():
    found = caught(lambda: torch.ones(2) + torch.ones(3))
    assert not from_strategy(found, TokenSampling())


def test_inherited_code_counts():
    class Derived(Broken):
        """Inherits everything."""

    strategy = Derived(ValueError("inherited"))
    assert from_strategy(caught(lambda: strategy.step(None, None)), strategy)
