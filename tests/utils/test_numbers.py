"""Numbers as they are shown."""

import math

import pytest

from ngrpo.utils.numbers import about, clock, fixed, fixed_off_zero, pace, percent, short, significant


@pytest.mark.parametrize("value", [-0.0, -1e-9, -0.0004, 0.0, 0.0004])
def test_what_is_rounded_to_nothing_has_no_minus(value: float) -> None:
    assert fixed(value) == "0.000"
    assert fixed(value, signed=True) == "+0.000"
    assert percent(value) == "0%"
    assert significant(math.copysign(0.0, value)) == "0"
    assert significant(math.copysign(1e-17, value), signed=True) == "0"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (fixed(0.5412), "0.541"),
        (fixed(0.175, signed=True), "+0.175"),
        (fixed(-0.175), "-0.175"),
        (fixed(math.nan), "nan"),
        (fixed_off_zero(0.000432, signed=True), "+0.0004"),
        (fixed_off_zero(-0.00002), "-0.00002"),
        (fixed_off_zero(0.175), "0.175"),
        (fixed_off_zero(0.0), "0.000"),
        (fixed_off_zero(1e-12), "0.000000000"),
        (significant(0.54132), "0.5413"),
        (significant(123.456), "123.5"),
        (significant(12_345.6), "12,346"),
        (significant(9_999.96), "10,000"),
        (significant(1e-6), "1e-6"),
        (significant(-2.5e-5, signed=True), "-2.5e-5"),
        (significant(2e-4), "0.0002"),
        (significant(math.inf), "inf"),
        (significant(math.nan), "nan"),
        (percent(0.125, 1), "12.5%"),
    ],
)
def test_digits(shown: str, expected: str) -> None:
    assert shown == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0"), (950, "950"), (999.4, "999"), (999.6, "1k"), (1234, "1.2k"), (9_960, "10k"), (34_100, "34k"),
     (999_600, "1M"), (5_600_000, "5.6M"), (2e9, "2G")],
)  # fmt: skip
def test_counts(count: float, expected: str) -> None:
    assert short(count) == expected


@pytest.mark.parametrize(
    ("seconds", "on_a_clock", "said"),
    [
        (0.4, "0:00", "0 s"),
        (59.6, "1:00", "1 min"),
        (185, "3:05", "3 min"),
        (720, "12:00", "12 min"),
        (3_599.9, "1:00:00", "1 h"),
        (3_723, "1:02:03", "1 h 2 min"),
        (86_399, "23:59:59", "1 d"),
        (187_506, "2d 4:05:06", "2 d 4 h"),
    ],
)
def test_lengths_of_time(seconds: float, on_a_clock: str, said: str) -> None:
    assert (clock(seconds), about(seconds)) == (on_a_clock, said)


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.0421, "0.0421 s"), (2.314, "2.31 s"), (45.24, "45.2 s"), (130.4, "130 s")]
)
def test_a_pace_has_three_digits(seconds: float, expected: str) -> None:
    assert pace(seconds) == expected
