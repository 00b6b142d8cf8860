"""Forward passes on a CPU, in microbatches of a few tokens."""

import torch
from over_ranks import alone

from ngrpo.algo.moments import Reduce
from ngrpo.modeling.cost import PassCost
from ngrpo.modeling.policy import ScoringModel
from ngrpo.training.forward import ForwardPasses
from ngrpo.training.memory_budget import MemoryBudget


def made_passes(
    model: ScoringModel, reduce: Reduce = alone, tokens: int = 80, share_prompts: bool = True
) -> ForwardPasses:
    return ForwardPasses(
        device=torch.device("cpu"),
        budget=MemoryBudget(tokens),
        mixed_in=None,
        cost=PassCost.of(model.lm.config),
        reduce=reduce,
        share_prompts=share_prompts,
    )
