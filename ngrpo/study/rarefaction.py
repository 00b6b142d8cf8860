"""Rarefaction: the expected number of distinct kinds among a fixed number of samples."""

from collections import Counter
from collections.abc import Hashable, Sequence

import torch

from ngrpo.evaluation.estimators import pass_at_k


def expected_distinct(kinds: Sequence[Hashable | None], m: int) -> float | None:
    """Expected number of distinct kinds among m of the samples, drawn without replacement.

    Rarefaction (Hurlbert 1971): ``sum_i 1 - C(N - N_i, m) / C(N, m)`` with N_i of the N samples of kind i. Unbiased for
    what m fresh samples would show, so that runs with different numbers of samples can be compared.

    Args:
        kinds: of the N samples; None is a sample without a kind (no answer), which is drawn but not counted.
        m: how many are drawn.

    Returns:
        None if there are fewer than m samples.
    """
    if len(kinds) < m:
        return None
    counts = list(Counter(kind for kind in kinds if kind is not None).values())
    if not counts:
        return 0.0
    return float(pass_at_k(len(kinds), torch.tensor(counts), m).sum())
