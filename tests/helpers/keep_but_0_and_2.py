"""A rule from outside the package, for the tests: which groups are trained on depends on the problem alone."""

import torch
from torch import Tensor

from ngrpo.types.experience import Experience


def keep_but_0_and_2(experience: Experience) -> Tensor:
    return torch.tensor([prompt.problem.key not in (0, 2) for prompt in experience.prompts])
