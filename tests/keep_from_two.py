"""A rule from outside the package, for the tests: which groups are trained on depends on the problem alone."""

import torch
from torch import Tensor

from ngrpo.rollout.experience import Experience


def keep_from_two(experience: Experience) -> Tensor:
    return torch.tensor([prompt.problem.key >= 2 for prompt in experience.prompts])
