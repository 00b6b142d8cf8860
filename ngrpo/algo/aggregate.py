"""Aggregation of per-token losses to one number, as a weight for every token.

``loss = sum_t weight_t * l_t``, and the denominators inside the weights are counts over the whole optimiser
batch, all microbatches and ranks. Microbatch losses then simply add up: however the batch is split, the
gradient is the same. Each function returns the weight of each token of each sequence, [S], in the dtype of
``lengths`` when that is floating.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class BatchTotals:
    """Counts over the whole optimiser batch; excluded responses, and tokens that are left out, are not counted.

    Attributes:
        sequences: number of responses with a token that counts.
        tokens: number of response tokens; those that several responses have in common may count once
            (`ngrpo.algo.loss_terms.LossInputs.share`), which makes the L_i fractions too.
    """

    sequences: int
    tokens: float


def token_mean(lengths: Tensor, totals: BatchTotals) -> Tensor:
    """``1 / tokens``: every token counts once, long responses more (DAPO, arXiv 2503.14476)."""
    return torch.ones_like(lengths) / (totals.tokens or 1)


def seq_mean_token_mean(lengths: Tensor, totals: BatchTotals) -> Tensor:
    """``1 / (sequences L_i)``: every response counts once (GRPO, arXiv 2402.03300; GSPO)."""
    return 1.0 / (lengths.masked_fill(lengths == 0, 1) * max(totals.sequences, 1))


def seq_mean_token_sum(lengths: Tensor, totals: BatchTotals) -> Tensor:
    """``1 / sequences``: the log-likelihood of whole responses (REINFORCE)."""
    return torch.ones_like(lengths) / max(totals.sequences, 1)


def const_norm(lengths: Tensor, totals: BatchTotals, length: int) -> Tensor:
    """``1 / (sequences length)``, with ``length`` the generation limit (Dr.GRPO, arXiv 2503.20783)."""
    return seq_mean_token_sum(lengths, totals) / length
