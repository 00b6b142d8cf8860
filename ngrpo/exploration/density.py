"""Log-densities of continuous actions, and the scale of their noise."""

import torch
from torch import Tensor


def table_rms(embedding: Tensor, rows: int) -> Tensor:
    """Returns the root mean square of the entries of the first ``rows`` rows of [V, d]; float32, 0-dimensional."""
    return embedding[:rows].detach().float().square().mean().sqrt()


def gaussian_log_density(vector: Tensor, mean: Tensor, sigma: Tensor, valid: Tensor) -> Tensor:
    """Returns -|vector - mean|^2 / (2 sigma^2) of each row; constants are dropped.

    Args:
        vector: [R, d], any float dtype; a constant.
        mean: float32 [R, d].
        sigma: float32 [R].
        valid: rows that have a vector, bool [R]; the others give finite values of no meaning.

    Returns:
        float32 [R].
    """
    deviation = (vector.detach().float() - mean) / torch.where(valid, sigma, 1.0)[:, None]
    return -0.5 * deviation.square().sum(-1)


def gumbel_log_density(residual: Tensor) -> Tensor:
    """Returns the log-density of the standard Gumbel distribution, elementwise."""
    return -residual - torch.exp(-residual)
