"""Distances between decisions, by hand."""

import pytest
import torch
from torch import Tensor

from ngrpo.engine_check import distances
from ngrpo.types.records import Step


def step(ids: list[list[int]], weights: list[list[float]], mixed: list[bool] | None = None, **more: Tensor) -> Step:
    flags = torch.tensor([True] * len(ids) if mixed is None else mixed)
    return Step(torch.tensor(ids)[:, 0], flags, torch.tensor(ids), torch.tensor(weights), **more)


def test_weights_are_compared_by_id_whatever_their_order():
    one = step([[5, 7, 9]] * 4, [[0.5, 0.3, 0.2]] * 4)
    other = step(
        [[7, 5, 9], [5, 7, 9], [5, 7, 8], [1, 2, 3]],
        [[0.3, 0.5, 0.2], [0.3, 0.5, 0.2], [0.5, 0.3, 0.2], [0.5, 0.3, 0.2]],
    )
    assert distances.mixtures(one, other).tolist() == pytest.approx([0.0, 0.4, 0.4, 2.0], abs=1e-6)


def test_an_id_that_occurs_twice_counts_once():
    one, other = step([[5, 7, 5]], [[0.5, 0.3, 0.2]]), step([[5, 7, 7]], [[0.7, 0.2, 0.1]])
    assert distances.mixtures(one, other).tolist() == pytest.approx([0.0], abs=1e-6)


def test_only_positions_that_both_mix_have_mixtures_to_compare():
    one = step([[5, 7]] * 3, [[0.5, 0.5]] * 3, [True, True, False])
    other = step([[5, 7], [5, 8], [5, 8]], [[0.5, 0.5]] * 3, [False, True, True])
    assert distances.flags(one, other).tolist() == [1.0, 0.0, 1.0]
    assert distances.mixtures(one, other).tolist() == [1.0]
    assert distances.tokens(one, step([[5, 7], [6, 7], [5, 7]], [[0.5, 0.5]] * 3)).tolist() == [0.0, 1.0, 0.0]


def test_vectors_and_noise_are_compared_by_their_size():
    vectors = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    one = step([[1], [1]], [[1.0], [1.0]], vector=vectors, noise=torch.tensor([1.1, 1.0]))
    other = step([[1], [1]], [[1.0], [1.0]], vector=torch.tensor([[0.0, 4.0], [0.0, 0.0]]), noise=torch.ones(2))
    assert distances.mixtures(one, other).tolist() == pytest.approx([0.75 + 0.1, 0.0], abs=1e-6)


def test_what_is_no_number_is_infinitely_far():
    one = step([[1]], [[torch.nan]])
    assert distances.mixtures(one, step([[1]], [[1.0]])).tolist() == [torch.inf]
