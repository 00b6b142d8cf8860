"""When a run is over."""

import pytest

from ngrpo.training.run_length import RunLength


@pytest.mark.parametrize(
    ("length", "done", "tokens", "share"),
    [
        (RunLength(40), 10, 10**9, 0.25),
        (RunLength(40), 40, 0, 1.0),
        (RunLength(40, 1000), 10, 100, 0.25),
        (RunLength(40, 1000), 10, 500, 0.5),
        (RunLength(40, 1000), 10, 1100, 1.1),
    ],
)
def test_the_nearer_limit_counts(length: RunLength, done: int, tokens: int, share: float) -> None:
    assert length.share(done, tokens) == pytest.approx(share)
    assert length.reached(done, tokens) is (share >= 1)
