"""Credit for the first token of one right response a group (Latent-GRPO)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ngrpo.algo.credit import Credit, Credited, ScoredBatch
from ngrpo.algo.segments import per_sequence_mean, sequence_index


@dataclass(frozen=True)
class FirstTokenOnce(Credit):
    """``A_t = A``, but of a group with A > 0 one response alone has an advantage at its first token.

    That is the response with A > 0 whose tokens the old policy finds likeliest, by the mean log-prob; at the first
    token of every other response, wrong ones too, A is 0 (Latent-GRPO, arXiv 2604.27998, its code). A group without
    A > 0 stays as it is. The code gives responses at the length limit A = 0, after the group's statistics
    (``algo.truncated=zero``) or before them (``zero_unscored``); whatever is done with them here, none is the one.
    """

    token_level: ClassVar[bool] = True
    needs_old_log_prob: ClassVar[bool] = True

    def __call__(self, batch: ScoredBatch, advantages: Tensor, penalty: Tensor) -> Credited:
        """See `Credit`; raises ValueError without old log-probs."""
        if batch.old_log_prob is None:
            raise ValueError("the credit of first tokens needs old_log_prob, which is None")
        right = (advantages > 0) & ~batch.truncated
        likely = per_sequence_mean(batch.old_log_prob, batch.lengths).masked_fill(~right, -math.inf)
        table = batch.groups.table(likely, fill=-math.inf)
        first = torch.arange(table.shape[-1]) == table.argmax(-1, keepdim=True)
        silent = (table > -math.inf).any(-1, keepdim=True) & ~first
        starts = batch.lengths.cumsum(0) - batch.lengths
        by_token = (advantages[sequence_index(batch.lengths)] - penalty).clone()
        silenced = batch.groups.flat(silent) & ~advantages.isnan()
        by_token[starts[silenced]] = 0.0
        return Credited(by_token[None])
