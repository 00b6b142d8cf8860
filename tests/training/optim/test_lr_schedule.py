"""The learning rate's factor, point by point."""

import math
from functools import partial

import pytest

from ngrpo.training.optim.lr_schedule import RunSchedule, constant, cosine


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


def test_without_a_limit_of_tokens_a_run_goes_by_its_steps() -> None:
    schedule = RunSchedule(partial(cosine, warmup=2), 10)
    assert [schedule(step) for step in range(11)] == [cosine(step, 10, warmup=2) for step in range(11)]


def test_the_nearer_limit_drives_the_schedule() -> None:
    schedule = RunSchedule(cosine, 1000)
    for share in (0.1, 0.25, 0.5, 0.9):
        assert schedule(7, share) == pytest.approx(0.5 * (1 + math.cos(math.pi * share)))
        assert schedule(950, share) == cosine(950, 1000)
    assert schedule(7, 1.2) == pytest.approx(0.0)


def test_a_warmup_stays_one_of_steps() -> None:
    schedule = RunSchedule(partial(cosine, warmup=4), 1000)
    assert [schedule(step, 0.01 + step / 100) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert schedule(8, 0.5) == pytest.approx(cosine(8, 16, warmup=4))  # half of 16 steps
    assert schedule(16, 1.0) == pytest.approx(0.0)


def test_steps_that_were_all_skipped_leave_the_first_rate() -> None:
    assert RunSchedule(cosine, 10)(0, 0.5) == 1.0
