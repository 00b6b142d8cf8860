"""Spans of time as a person writes them."""

import pytest

from ngrpo.errors import SettingError
from ngrpo.utils.duration import seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90), ("45m", 2700), ("11h30m", 41_400), ("2d", 172_800), ("1d1h1m1s", 90_061), ("1s", 1)],
)
def test_spans(text: str, expected: int) -> None:
    assert seconds(text, "trainer.max_time") == expected


@pytest.mark.parametrize("text", ["", "90", "0s", "1.5h", "-1h", "1h ", "30m2h", "h", "12:00:00", "9999999999h"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(SettingError) as caught:
        seconds(text, "trainer.max_time")
    assert str(caught.value) == f"trainer.max_time={text} is no span of time; write it like 90s, 45m, 11h30m or 2d."
