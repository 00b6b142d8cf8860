"""Garbage collection does not stop a server: what was there when it started is not looked through again."""

import gc

from running_server import running_server


def test_what_is_there_at_the_start_is_left_alone() -> None:
    before = gc.get_freeze_count()
    with running_server() as server:
        assert gc.get_freeze_count() > before + 10_000
        server.post("/ngrpo/generate", {"requests": [{"prompt_ids": [5], "key": 1}]})
        assert len(gc.get_objects()) < gc.get_freeze_count()
    assert gc.get_freeze_count() == 0
