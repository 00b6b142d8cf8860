"""Strategies that the compiler fails on run uncompiled."""

import warnings
from dataclasses import dataclass
from typing import NoReturn

import pytest
import torch
from torch import Tensor
from torch._inductor import config

from ngrpo.exploration import compiled as module
from ngrpo.exploration.base import Exploration, Step, StepContext
from ngrpo.exploration.compiled import compiled
from ngrpo.exploration.token import TokenSampling


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_COMPILED", {})
    torch.compiler.reset()


def doubled(strategy: Exploration, values: Tensor, more: float = 1.0) -> Tensor:
    return 2 * values + more


def test_a_failure_of_the_compiler_is_told_once_and_survived() -> None:
    def fail(graph: torch.fx.Graph) -> NoReturn:
        raise ValueError("operand does not dominate this use")

    run, values = compiled(doubled, TokenSampling()), torch.arange(5.0)
    told = r"fails on doubled of TokenSampling.* ValueError: operand does not dominate"
    with config.patch(post_grad_custom_pre_pass=fail), pytest.warns(UserWarning, match=told):
        assert torch.equal(run(values), doubled(TokenSampling(), values))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = compiled(doubled, TokenSampling())(values[:3], 4.0)
    assert torch.equal(again, doubled(TokenSampling(), values[:3], 4.0))


@dataclass(frozen=True)
class Mistaken(Exploration):
    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        raise NotImplementedError


def test_a_mistake_of_the_strategy_is_not_taken_for_the_compilers() -> None:
    def wrong(strategy: Exploration, values: Tensor) -> Tensor:
        return values @ values.new_ones(len(values) + 1)

    with pytest.warns(UserWarning, match="fails on wrong"), pytest.raises(RuntimeError, match="size"):
        compiled(wrong, Mistaken())(torch.ones(3))


def test_what_compiles_runs_compiled() -> None:
    run = compiled(doubled, TokenSampling())
    assert torch.equal(run(torch.arange(5.0), 3.0), doubled(TokenSampling(), torch.arange(5.0), 3.0))
    assert compiled(doubled, TokenSampling()) is run
    assert run.run is not run.plain  # type: ignore[attr-defined]
