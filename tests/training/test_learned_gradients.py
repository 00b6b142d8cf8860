"""A learned parameter without a gradient is warned of, once, and only where it could have had one."""

import logging

import pytest
import torch
from made_rollouts import rollout
from over_ranks import alone
from torch import Tensor

from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.policy import LearnedParameters
from ngrpo.training.learned_gradients import LearnedGradients

MIXED, PLAIN = rollout([1], [2, 3], {1: {2: 0.5, 3: 0.5}}), rollout([1], [2, 3])
ONE = torch.tensor(1.0)


@pytest.fixture
def learned() -> LearnedParameters:
    return LearnedParameters({"share": torch.zeros(2), "scale": torch.zeros(1), "unused": torch.zeros(1)})


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_each_without_a_gradient_is_named_once(learned: LearnedParameters, caplog: pytest.LogCaptureFixture) -> None:
    learned.share.grad, learned.scale.grad = torch.tensor([0.0, -1e-9]), torch.zeros(1)
    watch = LearnedGradients(learned, TokenSampling())
    watch.look([MIXED], ONE, alone)
    watch.look([MIXED], ONE, alone)
    assert [text.split(" got")[0] for text in said(caplog)] == [
        f"the parameter {name} of the strategy TokenSampling" for name in ("scale", "unused")
    ]
    assert caplog.records[0].name.startswith("ngrpo.")  # which is what health/warnings counts


@pytest.mark.parametrize(("rollouts", "norm"), [([PLAIN], 1.0), ([MIXED], 0.0)], ids=["nothing mixed", "no signal"])
def test_it_waits_for_a_step_that_could_give_one(
    learned: LearnedParameters, caplog: pytest.LogCaptureFixture, rollouts: list, norm: float
) -> None:
    watch = LearnedGradients(learned, TokenSampling())
    watch.look(rollouts, torch.tensor(norm), alone)
    assert said(caplog) == []
    watch.look([MIXED], ONE, alone)
    assert len(said(caplog)) == 3


def test_a_gradient_on_another_rank_counts(learned: LearnedParameters, caplog: pytest.LogCaptureFixture) -> None:
    def others(values: Tensor, kind: str) -> Tensor:
        return values + torch.tensor([3.0, 1.0, 1.0, 0.0])

    LearnedGradients(learned, TokenSampling()).look([PLAIN], ONE, others)
    assert ["unused" in text for text in said(caplog)] == [True]
