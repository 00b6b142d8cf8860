"""Engine processes that are killed: what is rebuilt makes the same rollouts, and nothing is left behind."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import HELPERS
from places import ROOT

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Named shortly: a socket's path has at most 107 characters."""
    folder = Path(tempfile.mkdtemp(prefix="d"))
    yield folder
    shutil.rmtree(folder)


def report(temporary: Path, *arguments: str) -> dict[str, Any]:
    path = os.pathsep.join(map(str, (ROOT, HELPERS, Path(__file__).parent, os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(
        [sys.executable, "tests/rollout/vllm/deaths.py", *arguments],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": path, "TMPDIR": str(temporary)},
        capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    made: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return made


def test_a_killed_engine_is_rebuilt_with_the_same_rollouts_and_leaves_nothing(temporary: Path) -> None:
    made = report(temporary)
    assert all(made["same"].values()), made["same"]
    assert len(made["same"]) == 7
    assert made["left"] == {"children": 0, "processes": [], "shared_memory": [], "sockets": []}
    assert [path for path in temporary.iterdir() if "torchinductor" not in path.name] == []


def test_a_step_that_fails_in_this_process_ends_all_calls_and_the_engine_is_rebuilt(temporary: Path) -> None:
    assert report(temporary, "--in-process", "forward")["same"] == {"forward": True}
