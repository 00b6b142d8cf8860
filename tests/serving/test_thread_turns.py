"""The threads of a server take short turns: an engine's step waits for no whole one of the thread with requests."""

import sys

from running_server import running_server


def test_turns_are_short_while_it_serves() -> None:
    before = sys.getswitchinterval()
    with running_server() as server:
        assert sys.getswitchinterval() < before / 10
        server.post("/ngrpo/generate", {"requests": [{"prompt_ids": [5], "key": 1}]})
    assert sys.getswitchinterval() == before
