"""The parameters of policy and critic, in the groups that their optimisers take."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from ngrpo.modeling.policy import ScoringModel
from ngrpo.training.optim.grad_norm import by_mesh

Groups = list[dict[str, Any]]


def policy_groups(policy: ScoringModel, learning_rates: Mapping[str, float]) -> Groups:
    """Groups what is trained of the language model by mesh, and gives each learned exploration parameter its own.

    Args:
        policy: the model.
        learning_rates: of the exploration strategy's parameters, by name.
    """
    learned = policy.learned.named_parameters()
    own = [{"params": [parameter], "lr": learning_rates[name]} for name, parameter in learned]
    return _by_mesh(parameter for parameter in policy.lm.parameters() if parameter.requires_grad) + own


def critic_groups(critic: ScoringModel) -> Groups:
    """Groups all parameters of the critic by mesh."""
    return _by_mesh(critic.parameters())


def _by_mesh(parameters: Iterable[Tensor]) -> Groups:
    return [{"params": part} for part in by_mesh(parameters)]
