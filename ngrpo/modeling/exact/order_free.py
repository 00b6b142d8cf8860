"""Sums that do not depend on their order, for a CPU: its libraries add in an order of their own.

Numbers are cut into two slices of so few bits that every sum of products of slices fits into the 53 bits of float64,
so that no addition rounds, and the order is of no account (Ozaki et al., Numerical Algorithms 59, 2012). What lies
below the second slice, 34 bits under a row's largest number, is left out.
"""

import torch
from torch import Tensor

_EXPONENT = 0x7FF << 52
_MANTISSA = 53
_TERMS = 18
"""Logarithm of the most terms of a sum; fixed, since terms of 0 beside the others must change nothing."""
_BITS_OF_SUM = _MANTISSA - 1 - _TERMS
_BITS_OF_PRODUCT = _BITS_OF_SUM // 2


def order_free_sum(numbers: Tensor) -> Tensor:
    """Returns the sums over the last dimension; float64 [..., n] -> [...]."""
    _check_terms(numbers.shape[-1])
    high, low = _slices(numbers, _top(numbers), _BITS_OF_SUM)
    return high.sum(-1) + low.sum(-1)


def order_free_product(left: Tensor, right: Tensor) -> Tensor:
    """Returns left right^T; float64 [..., M, K], [..., N, K] -> [..., M, N]."""
    return _product(left, _top(left), right, _top(right))


def order_free_mixture(weights: Tensor, vectors: Tensor) -> Tensor:
    """Returns weights vectors; float64 [..., M, K], [..., K, D] -> [..., M, D].

    A vector whose weight is 0 has no part in the result: each is divided by its own power of two, which its weight
    takes over.
    """
    size = _top(vectors)
    size = torch.where(size > 0, size, 1.0)
    weights = weights * size.transpose(-1, -2)
    one = torch.ones((), dtype=torch.float64)
    return _product(weights, _top(weights), (vectors / size).transpose(-1, -2), one)


def _product(left: Tensor, left_top: Tensor, right: Tensor, right_top: Tensor) -> Tensor:
    """Returns left right^T of numbers that are at most as large as the powers of two."""
    _check_terms(left.shape[-1])
    high, low = _slices(left, left_top, _BITS_OF_PRODUCT)
    right_high, right_low = (part.transpose(-1, -2) for part in _slices(right, right_top, _BITS_OF_PRODUCT))
    return high @ right_high + (high @ right_low + low @ right_high)


def _check_terms(count: int) -> None:
    if count > 2**_TERMS:
        raise ValueError(f"a sum of {count} terms can be order-free up to {2**_TERMS}")


def _top(numbers: Tensor) -> Tensor:
    """Returns the power of two above the largest number of each row; [..., n] -> [..., 1]; 0 of zeros."""
    largest = numbers.abs().amax(-1, keepdim=True)
    return (largest.view(torch.int64) & _EXPONENT).view(torch.float64) * 2.0


def _slices(numbers: Tensor, top: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Returns the first bits of numbers below ``top``, and as many after them."""
    high = _rounded(numbers, top, bits)
    return high, _rounded(numbers - high, top, 2 * bits)


def _rounded(numbers: Tensor, top: Tensor, bits: int) -> Tensor:
    """Rounds to multiples of ``top`` 2^-bits, which the last bit of the number added and taken away stands for."""
    carrier = top * (1.5 * 2.0 ** (_MANTISSA - 1 - bits))
    return (numbers + carrier) - carrier
