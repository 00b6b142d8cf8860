"""What a request leaves is freed when it is answered, not when the garbage collector comes, which is seldom here."""

import gc
import time
from collections.abc import Iterator
from typing import Any

import pytest
from running_server import QUESTION, RunningServer

GENERATE = {"requests": [{"prompt_ids": [5, 6], "key": 1}]}
CHAT = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 4}
ASKED = [
    ("/ngrpo/generate", GENERATE, 200),
    ("/ngrpo/generate", GENERATE | {"text": True}, 200),
    ("/ngrpo/generate", GENERATE | {"exploration": {"name": "none"}}, 400),
    ("/v1/completions", {"prompt": QUESTION, "max_tokens": 4, "n": 2}, 200),
    ("/v1/chat/completions", CHAT | {"logprobs": True}, 200),
    ("/v1/chat/completions", CHAT | {"stop": ["e"]}, 200),
    ("/v1/chat/completions", CHAT | {"stream": True}, 200),
    ("/v1/chat/completions", CHAT | {"stream": True, "stop": ["e"]}, 200),
]


@pytest.fixture
def found() -> Iterator[list[Any]]:
    """Keeps what only the garbage collector would have freed."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize(("path", "body", "status"), ASKED)
def test_no_request_is_left_to_the_garbage_collector(
    server: RunningServer, found: list[Any], path: str, body: dict[str, Any], status: int
) -> None:
    for _ in range(3):
        assert server.ask("POST", path, body)[0] == status
    time.sleep(0.1)
    gc.collect()
    assert [one for one in found if type(one).__module__.startswith("ngrpo.")] == []
