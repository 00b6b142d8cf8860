"""Reward terms from outside the package, for the tests."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.rewards.terms.base import Responses


@dataclass(frozen=True)
class Brevity:
    limit: int = 10

    def __call__(self, responses: Responses) -> Tensor:
        return torch.tensor([float(rollout.length < self.limit) for rollout in responses.rollouts])


def fails_on_problem_2(responses: Responses) -> Tensor:
    for problem in responses.problems:
        if problem.key == 2:
            raise ValueError("not this one")
    return torch.zeros(len(responses))
