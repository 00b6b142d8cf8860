"""The folder of sockets; needs no vLLM."""

import os
import socket
from pathlib import Path

import pytest

from ngrpo.rollout.vllm.socket_folder import SocketFolder


@pytest.mark.parametrize("before", [None, "/elsewhere"])
def test_sockets_lie_there_and_are_removed(monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    if before is None:
        monkeypatch.delenv("VLLM_RPC_BASE_PATH", raising=False)
    else:
        monkeypatch.setenv("VLLM_RPC_BASE_PATH", before)
    sockets = SocketFolder()
    with sockets.used():
        folder = Path(os.environ["VLLM_RPC_BASE_PATH"])
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(folder / "left"))
    assert os.environ.get("VLLM_RPC_BASE_PATH") == before
    sockets.clear()
    assert list(folder.iterdir()) == []
    left.close()
    del sockets
    assert not folder.exists()
