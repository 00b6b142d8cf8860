"""Order-free sums: right, and the same in any order, at any width and beside any other rows."""

import pytest
import torch

from ngrpo.modeling.exact.order_free import order_free_mixture, order_free_product, order_free_sum


def wild(*shape: int) -> torch.Tensor:
    """Numbers of very different sizes, whose float64 sums depend on the order."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(-12, 12, shape, generator=generator)
    return torch.randn(*shape, generator=generator).double() * 2.0**sizes


def test_a_sum_is_the_same_in_any_order() -> None:
    numbers = wild(50, 900)
    order = torch.randperm(900, generator=torch.Generator().manual_seed(1))
    assert not torch.equal(numbers.cumsum(-1)[:, -1], numbers[:, order].cumsum(-1)[:, -1])
    assert torch.equal(order_free_sum(numbers), order_free_sum(numbers[:, order]))
    padded = torch.cat((numbers, torch.zeros(50, 77).double()), -1)
    assert torch.equal(order_free_sum(numbers), order_free_sum(padded))
    torch.testing.assert_close(order_free_sum(numbers), numbers.sum(-1), atol=1e-6, rtol=1e-9)


def test_a_product_is_the_same_in_any_order() -> None:
    left, right = wild(9, 300), wild(40, 300)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    made = order_free_product(left, right)
    assert torch.equal(made, order_free_product(left[:, order], right[:, order]))
    assert torch.equal(made[4:5], order_free_product(left[4:5], right))
    largest = left.abs().amax(-1)[:, None] * right.abs().amax(-1)
    assert ((made - left @ right.T).abs() / largest).max() < 300 * 2.0**-32


def test_what_has_no_weight_has_no_part_in_a_mixture() -> None:
    weights, vectors = wild(5, 70).abs(), wild(70, 16)
    weights[:, 50:] = 0.0
    made = order_free_mixture(weights, vectors)
    vectors[50:] *= 2.0**40
    assert torch.equal(made, order_free_mixture(weights, vectors))
    assert torch.equal(made, order_free_mixture(weights[:, :50], vectors[:50]))
    torch.testing.assert_close(made, weights[:, :50] @ vectors[:50], atol=1e-2, rtol=1e-6)


def test_zeros_make_zeros() -> None:
    nothing = torch.zeros(3, 4).double()
    assert order_free_sum(nothing).tolist() == [0.0] * 3
    assert torch.equal(order_free_product(nothing, wild(2, 4)), torch.zeros(3, 2).double())
    assert torch.equal(order_free_mixture(nothing, torch.zeros(4, 2).double()), torch.zeros(3, 2).double())


def test_what_is_not_finite_shows() -> None:
    numbers = wild(2, 5)
    numbers[0, 1] = torch.nan
    made = order_free_product(numbers, wild(3, 5))
    assert made[0].isnan().all()
    assert made[1].isfinite().all()


def test_more_terms_than_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="262145 terms"):
        order_free_sum(torch.zeros(1, 2**18 + 1).double())
