"""Tensor parallelism: two worker processes make the rollouts of one, records included."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]


def test_two_workers_make_the_rollouts_of_the_torch_engine():
    here = Path(__file__).parent
    # The workers import the engine's extension, and the script's helpers come with this folder.
    path = os.pathsep.join([str(here.parents[2]), str(here), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(here / "tensor_parallel.py")],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert min(report["loaded"], report["handed over"]) > 50
