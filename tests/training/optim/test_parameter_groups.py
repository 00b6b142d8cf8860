"""Groups of parameters for the optimisers."""

import torch

from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.modeling.critic import ValueModel
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.policy import ScoringModel
from ngrpo.training.optim.parameter_groups import critic_groups, policy_groups


def numbers(group: dict) -> set[int]:
    return {id(parameter) for parameter in group["params"]}


def test_learned_exploration_has_learning_rates_of_its_own(tiny_source: ModelSource):
    strategy = HybridReasoning()
    policy = ScoringModel(tiny_source.load(), strategy.initial_parameters(32))
    rates = strategy.learning_rates()
    model, *learned = policy_groups(policy, rates)
    assert numbers(model) == {id(p) for p in policy.lm.parameters()}
    assert "lr" not in model
    named = {name: id(parameter) for name, parameter in policy.learned.named_parameters()}
    assert {named_id: group["lr"] for group in learned for named_id in numbers(group)} == {
        named[name]: rate for name, rate in rates.items()
    }
    optimizer = torch.optim.AdamW(policy_groups(policy, rates), lr=0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, *(group["lr"] for group in learned)]


def test_frozen_parameters_are_in_no_group(tiny_source: ModelSource):
    policy = ScoringModel(tiny_source.load()).requires_grad_(False)
    policy.lm.lm_head.weight.requires_grad_(True)
    assert [numbers(group) for group in policy_groups(policy, {})] == [{id(policy.lm.lm_head.weight)}]


def test_a_critic_trains_all_its_parameters(tiny_source: ModelSource):
    critic = ValueModel(tiny_source.load())
    (group,) = critic_groups(critic)
    assert numbers(group) == {id(p) for p in critic.parameters()}
