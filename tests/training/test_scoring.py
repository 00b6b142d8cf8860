"""Scores before the optimiser steps: which are made, by which model, in which order."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from made_passes import made_passes
from update_probe import ALGORITHMS, HEAD

from ngrpo.algo.credit import Broadcast
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.loading import ModelSource
from ngrpo.training.models import ModelLoader, Models
from ngrpo.training.scoring import Scorer
from ngrpo.training.update_settings import UpdateSettings
from ngrpo.types.rollouts import Rollout

GRPO = ALGORITHMS["grpo"]


@pytest.fixture
def rollouts(make_engine, bound, requests, sampling) -> list[Rollout]:
    engine = make_engine()
    made: list[Rollout] = engine.generate(requests[:8], sampling, bound(engine, NeighborMixing(rate=0.5)))
    return made


@pytest.fixture
def models(tiny_source: ModelSource) -> Models:
    """A reference with another head than the policy's, and a critic that is not 0 everywhere."""
    loader = ModelLoader(tiny_source, NeighborMixing(), UpdateSettings(), torch.device("cpu"), None)
    made = loader.load(reference=True, critic=True)
    with torch.no_grad():
        made.reference.lm.lm_head.weight.mul_(1.5)
    torch.nn.init.constant_(made.critic.head.weight, HEAD)
    return made


def scorer(models: Models, algorithm: Algorithm, **settings) -> Scorer:
    return Scorer(
        models=models,
        settings=UpdateSettings(**settings),
        algorithm=algorithm,
        exploration=NeighborMixing(),
        forward_passes=made_passes(models.policy),
    )


def test_only_what_the_loss_needs_is_scored(models: Models, rollouts: list[Rollout]):
    unknown = [None] * len(rollouts)
    none = scorer(replace(models, critic=None), replace(GRPO, kl_coef=0.0)).precompute(rollouts)
    assert (none.old, none.reference, none.values) == (unknown, unknown, unknown)
    both = scorer(replace(models, critic=None), replace(GRPO, kl_in="reward")).precompute(rollouts)
    assert [len(old) for old in both.old] == [len(ref) for ref in both.reference] == [r.length for r in rollouts]
    assert both.values == unknown
    assert not torch.allclose(torch.cat(list(both.old)), torch.cat(list(both.reference)))
    with_critic = scorer(models, replace(GRPO, kl_coef=0.0)).precompute(rollouts)
    assert [len(values) for values in with_critic.values] == [r.length + 1 for r in rollouts]


class ReadsOldLogProbs(Broadcast):
    """Credit from statistics over the tokens of the whole batch."""

    needs_old_log_prob = True


@pytest.mark.parametrize("steps", [1, 2, 4, 8])
@pytest.mark.parametrize("changed", [{}, {"kl_in": "reward"}, {"credit": ReadsOldLogProbs()}], ids=str)
def test_old_log_probs_of_the_first_step_are_left_to_it_unless_advantages_need_them(
    models: Models, rollouts: list[Rollout], steps: int, changed: dict[str, Any]
):
    found = scorer(models, replace(GRPO, prompts_per_batch=16, optimizer_steps=steps, **changed))
    expected = found.log_probs(models.policy, rollouts)
    first = 0 if changed else len(rollouts) // steps
    old = found.precompute(rollouts).old
    assert old[:first] == [None] * first
    for one, every in zip(old[first:], expected[first:], strict=True):
        torch.testing.assert_close(one, every, atol=1e-5, rtol=0)


def test_scores_come_back_in_the_order_of_the_rollouts(models: Models, rollouts: list[Rollout]):
    found = scorer(models, GRPO)
    scored = found.log_probs(models.policy, rollouts), found.reference_log_probs(rollouts), found.values(rollouts)
    for rollout, log_prob, reference, values in zip(rollouts, *scored, strict=True):
        for alone, together in (
            (found.log_probs(models.policy, [rollout]), log_prob),
            (found.reference_log_probs([rollout]), reference),
            (found.values([rollout]), values),
        ):
            torch.testing.assert_close(alone[0], together, atol=1e-4, rtol=1e-4)


def test_the_step_computes_the_same_log_probs(models: Models, rollouts: list[Rollout]):
    found = scorer(models, GRPO)
    expected = found.log_probs(models.policy, rollouts)
    for made, log_prob in zip(found.training_log_probs(rollouts), expected, strict=True):
        assert not made.requires_grad
        torch.testing.assert_close(made, log_prob)


def test_a_reference_that_waits_in_host_memory_goes_back(
    models: Models, rollouts: list[Rollout], monkeypatch: pytest.MonkeyPatch
):
    moves = []
    monkeypatch.setattr(models.reference, "to", lambda device: moves.append(str(device)))
    scorer(models, GRPO).reference_log_probs(rollouts)
    assert moves == []
    scorer(models, GRPO, offload_reference=True).reference_log_probs(rollouts)
    assert moves == ["cpu", "cpu"]


def test_a_strategy_may_have_the_reference_score_the_text_alone(models: Models, rollouts: list[Rollout]):
    found = scorer(models, GRPO)
    plain = found.reference_log_probs([rollout.without_mixtures() for rollout in rollouts])
    mixed = found.reference_log_probs(rollouts)
    assert not torch.allclose(torch.cat(plain), torch.cat(mixed))
    found.exploration = HybridReasoning()
    assert found.exploration.plain_reference
    assert torch.equal(torch.cat(found.reference_log_probs(rollouts)), torch.cat(plain))
