"""A hub that cannot be reached costs seconds and is said in a sentence."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

CODE = """
import sys
from ngrpo.errors import SettingError
from ngrpo.data.sources import open_source
from ngrpo.modeling.loading import ModelSource
try:
    open_source("some/data") if sys.argv[1] == "data" else ModelSource("some/model").config()
except SettingError as error:
    print(error)
"""


@pytest.mark.parametrize("listening", [False, True], ids=["closed", "silent"])
@pytest.mark.parametrize("what", ["data", "model"])
def test_an_unreachable_hub_is_said_within_seconds(what: str, listening: bool, tmp_path: Path) -> None:
    with socket.socket() as hub:
        hub.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{hub.getsockname()[1]}"
        hub.listen() if listening else hub.close()
        environment = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"}
        environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path)}
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", CODE, what], env=environment, capture_output=True, text=True, timeout=60
        )
    assert f"{what}.path=" in done.stdout, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert f"{endpoint} cannot be reached" in done.stderr
    assert time.monotonic() - started < 40  # imports of a loaded machine included; without the check minutes
