"""The threads of a server take short turns: an engine's step waits for no whole one of the thread with requests."""

import sys
from collections.abc import Iterator

import pytest
from running_server import running_server

USUAL_S = 0.005


@pytest.fixture(autouse=True)
def as_usual() -> Iterator[None]:
    """As if no server of another test were there."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(USUAL_S)
    yield
    sys.setswitchinterval(before)


def test_turns_are_short_while_it_serves() -> None:
    with running_server() as server:
        assert sys.getswitchinterval() < USUAL_S / 10
        server.post("/ngrpo/generate", {"requests": [{"prompt_ids": [5], "key": 1}]})
    assert sys.getswitchinterval() == pytest.approx(USUAL_S)
