"""Garbage collection does not stop a server: it looks at what was there never again, and at what comes seldom."""

import gc
from collections.abc import Iterator

import pytest
from running_server import running_server

THRESHOLD = (700, 10, 10)


@pytest.fixture(autouse=True)
def as_usual() -> Iterator[None]:
    """As if no server of another test were there."""
    before = gc.get_threshold()
    gc.unfreeze()
    gc.set_threshold(*THRESHOLD)
    yield
    gc.set_threshold(*before)


def test_what_is_there_at_the_start_is_left_alone() -> None:
    with running_server() as server:
        assert gc.get_freeze_count() > 10_000
        server.post("/ngrpo/generate", {"requests": [{"prompt_ids": [5], "key": 1}]})
        assert len(gc.get_objects()) < gc.get_freeze_count()
    assert gc.get_freeze_count() == 0


def test_what_requests_bring_is_seldom_looked_through() -> None:
    with running_server():
        assert gc.get_threshold()[0] > 100 * THRESHOLD[0]
    assert gc.get_threshold() == THRESHOLD
