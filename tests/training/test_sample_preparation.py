"""Samples from a rollout batch: rollouts, advantages and precomputed log-probs belong together."""

from dataclasses import replace

import pytest
import torch
from made_passes import made_passes
from update_probe import ALGORITHMS, Case, GivenExperience

from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.loading import ModelSource
from ngrpo.training.models import ModelLoader
from ngrpo.training.sample_preparation import prepare_samples
from ngrpo.training.scoring import Scorer
from ngrpo.training.update_settings import UpdateSettings


@pytest.mark.parametrize("minibatches", [1, 2])
def test_a_sample_has_what_belongs_to_its_rollout(
    minibatches: int, make_engine, bound, requests, sampling, tiny_source: ModelSource
):
    engine, algorithm = make_engine(), replace(ALGORITHMS["grpo"], optimizer_steps=minibatches)
    rollouts = engine.generate(requests[:8], sampling, bound(engine, NeighborMixing(rate=0.3)))
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]])
    experience = GivenExperience(Case(tiny_source.path, "grpo", 1.0, 80, rollouts, rewards), 0, 1)
    loader = ModelLoader(tiny_source, NeighborMixing(), UpdateSettings(), torch.device("cpu"), None)
    models = loader.load(reference=True, critic=False)
    scorer = Scorer(
        models=models,
        settings=UpdateSettings(),
        algorithm=algorithm,
        exploration=NeighborMixing(),
        forward_passes=made_passes(models.policy),
    )
    samples, advantages = prepare_samples(experience, algorithm, scorer)
    assert [sample.rollout for sample in samples] == rollouts
    expected = algorithm.advantage(rewards).flatten()
    first = len(rollouts) // minibatches
    old = [None] * first + (scorer.log_probs(models.policy, rollouts[first:]) if minibatches > 1 else [])
    reference = scorer.reference_log_probs(rollouts)
    for i, (sample, own) in enumerate(zip(samples, advantages, strict=True)):
        assert torch.equal(sample.advantage, torch.full((1, rollouts[i].length), float(expected[i])))
        assert torch.equal(sample.advantage, own)
        assert torch.equal(sample.ref_log_prob, reference[i])
        assert sample.old_log_prob is None if i < first else torch.equal(sample.old_log_prob, old[i])
