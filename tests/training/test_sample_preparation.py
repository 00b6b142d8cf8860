"""Samples from a rollout batch: rollouts, advantages and precomputed log-probs belong together."""

from dataclasses import replace

import pytest
import torch
from made_passes import made_passes
from made_rollouts import rollout
from update_probe import ALGORITHMS, Case, GivenExperience

from ngrpo.algo.policy_loss import Algorithm
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.policy import ScoringModel
from ngrpo.training import sample_preparation
from ngrpo.training.load_balancing import LoadBalance, SequenceCost
from ngrpo.training.models import ModelLoader
from ngrpo.training.sample_preparation import prepare_samples
from ngrpo.training.scoring import Scorer
from ngrpo.training.update_settings import UpdateSettings


def made_scorer(source: ModelSource, algorithm: Algorithm, share_prompts: bool = True) -> Scorer:
    loader = ModelLoader(source, NeighborMixing(), UpdateSettings(), torch.device("cpu"), None)
    models = loader.load(reference=True, critic=False)
    return Scorer(
        models=models,
        settings=UpdateSettings(),
        algorithm=algorithm,
        exploration=NeighborMixing(),
        forward_passes=made_passes(models.policy, share_prompts=share_prompts),
    )


@pytest.mark.parametrize("minibatches", [1, 2])
def test_a_sample_has_what_belongs_to_its_rollout(
    minibatches: int, make_engine, bound, requests, sampling, tiny_source: ModelSource
):
    engine, algorithm = make_engine(), replace(ALGORITHMS["grpo"], optimizer_steps=minibatches)
    rollouts = engine.generate(requests[:8], sampling, bound(engine, NeighborMixing(rate=0.3)))
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]])
    experience = GivenExperience(Case(tiny_source.path, "grpo", 1.0, 80, rollouts, rewards), 0, 1)
    scorer = made_scorer(tiny_source, algorithm)
    samples, advantages = prepare_samples(experience, algorithm, scorer)
    assert [sample.rollout for sample in samples] == rollouts
    expected = algorithm.advantage(rewards).flatten()
    first = len(rollouts) // minibatches
    old = [None] * first + (scorer.log_probs(scorer.models.policy, rollouts[first:]) if minibatches > 1 else [])
    reference = scorer.reference_log_probs(rollouts)
    for i, (sample, own) in enumerate(zip(samples, advantages, strict=True)):
        assert torch.equal(sample.advantage, torch.full((1, rollouts[i].length), float(expected[i])))
        assert torch.equal(sample.advantage, own)
        assert torch.equal(sample.ref_log_prob, reference[i])
        assert sample.old_log_prob is None if i < first else torch.equal(sample.old_log_prob, old[i])


@pytest.mark.parametrize("share_prompts", [True, False])
def test_ranks_are_balanced_by_the_cost_of_sequences_and_of_prompts_they_share(
    share_prompts: bool,
    make_engine,
    bound,
    requests,
    sampling,
    tiny_source: ModelSource,
    monkeypatch: pytest.MonkeyPatch,
):
    """The first prompt comes twice, in two groups that are not neighbours."""
    engine, algorithm = make_engine(), ALGORITHMS["grpo"]
    rollouts = engine.generate(requests[:8], sampling, bound(engine, NeighborMixing(rate=0.3)))
    again = [replace(rollout, key=rollout.key + 1) for rollout in rollouts[:4]]
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    experience = GivenExperience(Case(tiny_source.path, "grpo", 1.0, 80, rollouts + again, rewards), 0, 1)
    given: list[SequenceCost] = []
    balance = LoadBalance.of

    def listening(costs: list[SequenceCost], minibatches: int, rank: int) -> LoadBalance:
        given.extend(costs)
        return balance(costs, minibatches, rank)

    monkeypatch.setattr(LoadBalance, "of", listening)
    scorer = made_scorer(tiny_source, algorithm, share_prompts)
    prepare_samples(experience, algorithm, scorer)
    cost = scorer.forward_passes.cost
    lengths = [(len(r.prompt_ids), len(r.prompt_ids) + len(r.response_ids)) for r in rollouts + again]
    assert [one.alone for one in given] == [cost.linear * n + cost.quadratic * n**2 for _, n in lengths]
    together = [max(1, 80 // n) for _, n in lengths]  # in a microbatch of 80 tokens, in which one computes the prompt
    assert set(together) == {2, 4}
    saved = [cost.linear * prompt * (1 - 1 / some) for (prompt, _), some in zip(lengths, together, strict=True)]
    assert [one.repeated for one in given] == saved
    assert [one.prompt for one in given] == ([0] * 4 + [4] * 4 + [0] * 4 if share_prompts else [*range(12)])


def test_a_prompt_that_is_not_shared_saves_nothing(tiny_source: ModelSource) -> None:
    """Two tokens of 102 are less than what `pack` shares; of 22 they are more."""
    passes = made_passes(ScoringModel(tiny_source.load()), tokens=1000)
    costs = sample_preparation._costs([rollout([5, 6], [7] * length) for length in (100, 20)], passes)
    assert [cost.repeated > 0 for cost in costs] == [False, True]
