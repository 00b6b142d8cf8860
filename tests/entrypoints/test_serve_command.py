"""What cannot be served is refused in one sentence, before a model is loaded."""

import socket
from pathlib import Path

import pytest
from forked import server
from places import ROOT

NGRPO = str(ROOT / "ngrpo/__main__.py")

REFUSED = [
    (("server.port=70000",), "server.port=70000 is no port; choose one in [0, 65535]."),
    (("server.max_requests=0",), "server.max_requests=0 serves nothing; choose a positive number."),
    (
        ("server.host=0.0.0.0", "server.token_variable=NO_SUCH_TOKEN"),
        "server.host=0.0.0.0 is reached from other machines, and NO_SUCH_TOKEN holds no token; set that environment "
        "variable to a long random text, or server.host=127.0.0.1.",
    ),
    (("rollout=server",), "rollout=server asks a server, and this is to be one; set rollout=auto, torch or vllm."),
    (("rollout.temperature=0",), "rollout.temperature=0.0 cannot divide logits; choose a positive value "),
    (("server.hosts=x",), "server.hosts"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED)
def test_it_is_refused_in_a_sentence(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = server().run((NGRPO, "serve", "demo", *words), tmp_path)
    assert done.status == 1
    assert done.said.startswith(f"error: {said}"), done.said
    assert done.said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = server().run((NGRPO, "serve", "demo", f"server.port={port}"), tmp_path)
    assert done.status == 1
    assert f"error: server.host=127.0.0.1 with server.port={port} cannot be listened on (" in done.said
