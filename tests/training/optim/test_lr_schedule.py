"""The learning rate's factor, point by point."""

import pytest

from ngrpo.training.optim.lr_schedule import constant, cosine


def test_constant():
    assert [constant(step, 10) for step in range(10)] == [1.0] * 10
    assert [constant(step, 10, warmup=4) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_falls_from_one_to_the_floor():
    assert [cosine(step, 8) for step in (0, 4, 8, 9)] == pytest.approx([1.0, 0.5, 0.0, 0.0])
    assert [cosine(step, 8, floor=0.2) for step in (0, 4, 8)] == pytest.approx([1.0, 0.6, 0.2])
    values = [cosine(step, 50) for step in range(50)]
    assert values == sorted(values, reverse=True)


def test_cosine_rises_first():
    assert [cosine(step, 14, warmup=4) for step in range(6)][:5] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    assert cosine(9, 14, warmup=4) == pytest.approx(0.5)
    assert cosine(3, 2, warmup=4) == 1.0
