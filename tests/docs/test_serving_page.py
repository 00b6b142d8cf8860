"""The commands and code blocks of the page about serving, as they stand there, with a free port."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from places import ROOT
from prose import PAGES, commands

PAGE = "docs/serving.md"
ADDRESS = "http://127.0.0.1:8000"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGES[PAGE], flags=re.DOTALL)
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def command(start: str) -> list[str]:
    """Returns the one command of the page that starts so."""
    (found,) = [shlex.split(line) for line in commands(PAGE) if line.startswith(start)]
    return found


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The server of the page, at a free port, which it says when it is ready."""
    _, *words = command("ngrpo serve")
    server = subprocess.Popen(
        [sys.executable, "-m", "ngrpo", *words, "server.port=0"], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    said = []
    for line in server.stdout:
        said.append(line)
        if found := re.search(r"serving demo at (http://127.0.0.1:\d+), without a token", line):
            break
    else:
        pytest.fail("".join(said))
    port = urlsplit(found[1]).port
    assert port is not None
    deadline = time.monotonic() + 30
    while not answers(port):
        assert time.monotonic() < deadline
    yield found[1]
    server.send_signal(signal.SIGTERM)
    assert server.wait(30) == 0
    assert server.stdout.read().endswith("stopped\n")


def answers(port: int) -> bool:
    try:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except ConnectionRefusedError:
        time.sleep(0.1)
        return False


def test_the_page_has_these_commands_and_no_others() -> None:
    assert [line.split()[0:2] for line in commands(PAGE)] == [
        ["pip", "install"], ["ngrpo", "serve"], ["curl", "-s"], ["ngrpo", "train"],
        ["export", "VLLM_PLUGINS=ngrpo"], ["vllm", "serve"],  # tests/rollout/vllm/test_vllm_endpoint.py serves so
    ]  # fmt: skip


def test_curl(url: str) -> None:
    words = [word.replace(ADDRESS, url) for word in command("curl")]
    said = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert len(said["choices"]) == 2
    again = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert again["choices"] == said["choices"]


def test_openais_client(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openai")
    run(BLOCKS[0], url)
    assert capsys.readouterr().out.strip()


def test_the_explorer(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(BLOCKS[1], url)
    assert capsys.readouterr().out.count("tensor(") == 8


def run(block: str, url: str) -> None:
    exec(compile(block.replace(ADDRESS, url), PAGE, "exec"), {})


def test_training(url: str, tmp_path: Path) -> None:
    _, *words = [word.replace(ADDRESS, url) for word in command("ngrpo train")]
    short = ["debug=fast", "trainer.iterations=1", f"hydra.run.dir={tmp_path / 'run'}"]
    done = subprocess.run(
        [sys.executable, "-m", "ngrpo", *words, *short], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"weights [0-9a-f]{16} of step 2 were sent to the servers: \d+\.\d MiB in", done.stdout)


def test_the_two_blocks_are_the_only_ones() -> None:
    assert len(BLOCKS) == 2
