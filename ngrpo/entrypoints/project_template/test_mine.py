"""Tests of the strategy and the reward: ``python -m pytest`` in this folder."""

import torch
from my_reward import BoxedNumber
from my_strategy import BlendTopTwo

from ngrpo.exploration.base import StepContext
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.vocabulary import Vocabulary


def test_the_strategy_does_what_it_declares() -> None:
    """Binding tries a few steps, as training does, and refuses what contradicts the class."""
    bind(BlendTopTwo(), torch.randn(64, 8), Vocabulary(64, frozenset({0}), {"</think>": 5}))


def test_it_blends_where_the_model_is_unsure() -> None:
    """Of three rows the first is unsure, the second sure, and the third has ended its reasoning."""
    context = StepContext(
        keys=torch.arange(3),
        positions=torch.zeros(3, dtype=torch.int64),
        embedding=torch.zeros(0, 1),
        ended=torch.tensor([False, False, True]),
        end_ids=torch.tensor([], dtype=torch.int64),
        tables={},
        state=torch.zeros(3, dtype=torch.int32),
    )
    step = BlendTopTwo().step(torch.tensor([[1.0, 1.0, -9.0], [9.0, 0.0, 0.0], [1.0, 1.0, -9.0]]), context)
    assert step.mixed.tolist() == [True, False, False]
    assert step.weights[0].tolist() == [0.5, 0.5]


def test_the_reward_reads_the_last_box() -> None:
    """Right, wrong, and no answer."""
    texts = [r"\boxed{3} or rather \boxed{ 4 }", r"\boxed{5}", "4"]
    assert [score.reward for score in BoxedNumber()(texts, ["4"] * 3)] == [1.0, 0.1, 0.0]
