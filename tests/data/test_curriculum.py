import json
import math

import pytest

from ngrpo.data.curriculum import Curriculum, EveryProblem, RisingDifficulty, SampledByPassRate
from ngrpo.errors import SettingError
from ngrpo.types.problems import PassRate, Problem


def problem(key: int = 0, difficulty: float | None = None) -> Problem:
    return Problem(key, "?", "1", difficulty)


def share(curriculum: Curriculum, key: int, seed: int = 0, epochs: int = 2000) -> float:
    return sum(curriculum.admits(problem(key), epoch, 0, seed) for epoch in range(epochs)) / epochs


def test_every_problem_is_admitted() -> None:
    assert share(EveryProblem(), 3, epochs=10) == 1


def test_the_limit_rises_linearly_and_then_falls_away() -> None:
    rising = RisingDifficulty(first=1.0, last=5.0, iterations=8)
    assert [rising.limit(i) for i in (0, 2, 4, 7, 8, 100)] == [1.0, 2.0, 3.0, 4.5, math.inf, math.inf]
    assert rising.admits(problem(difficulty=2.0), 0, 2, 0)
    assert not rising.admits(problem(difficulty=2.1), 0, 2, 0)
    assert rising.admits(problem(difficulty=9.0), 0, 8, 0)


@pytest.mark.parametrize("settings", [(2.0, 1.0, 10), (1.0, 2.0, 0)])
def test_a_schedule_that_does_not_rise_is_refused(settings: tuple[float, float, int]) -> None:
    with pytest.raises(SettingError, match=r"data\.curriculum\.first="):
        RisingDifficulty(*settings)


@pytest.mark.parametrize(("rate", "expected"), [(0.0, 0.2), (1.0, 0.2), (0.5, 1.0), (0.25, 0.2 + 0.8 * 0.75)])
def test_admission_follows_the_variance_of_the_reward(rate: float, expected: float) -> None:
    curriculum = SampledByPassRate(floor=0.2)
    assert share(curriculum, 7) == 1  # not met yet
    curriculum.report([PassRate(7, rate)])
    assert curriculum.probability(7) == pytest.approx(expected)
    assert share(curriculum, 7) == pytest.approx(expected, abs=0.04)  # four standard errors
    assert share(curriculum, 8) == 1


def test_draws_depend_on_seed_key_and_epoch_alone() -> None:
    curriculum = SampledByPassRate(floor=0.5)
    curriculum.report([PassRate(key, 0.0) for key in (1, 2)])
    draws = [
        [curriculum.admits(problem(key), epoch, iteration, seed) for epoch in range(64)]
        for key, seed, iteration in ((1, 0, 0), (1, 0, 9), (2, 0, 0), (1, 1, 0))
    ]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]
    assert draws[0] != draws[3]


def test_the_last_report_counts_and_the_order_within_one_does_not() -> None:
    one, two = SampledByPassRate(), SampledByPassRate()
    one.report([PassRate(1, 0.0), PassRate(2, 0.5), PassRate(1, 1.0)])
    two.report([PassRate(1, 1.0), PassRate(1, 0.0), PassRate(2, 0.5)])
    assert one.rates == two.rates == {1: 1.0, 2: 0.5}
    one.report([PassRate(1, 0.25)])
    assert one.rates == {1: 0.25, 2: 0.5}


def test_the_state_is_primitives_and_may_come_from_a_run_without() -> None:
    one, two = SampledByPassRate(), SampledByPassRate()
    one.report([PassRate(1, 0.25)])
    two.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert two.rates == {1: 0.25}
    two.load_state_dict(EveryProblem().state_dict())
    assert two.rates == {}


@pytest.mark.parametrize("floor", [0.0, -0.1, 1.1])
def test_the_floor_is_a_probability(floor: float) -> None:
    with pytest.raises(SettingError, match=r"data\.curriculum\.floor="):
        SampledByPassRate(floor)
