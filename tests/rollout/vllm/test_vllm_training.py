"""Training the demo with rollouts in vLLM."""

import os
import subprocess
import sys

import pytest
from places import ROOT

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]


def test_the_demo_trains_with_vllm_to_the_end(tmp_path):
    overrides = ["rollout=vllm", "exploration=neighbor", "algo=gspo", "debug=fast", f"hydra.run.dir={tmp_path}"]
    done = subprocess.run(
        [sys.executable, "scripts/train.py", *overrides],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert list((tmp_path / "checkpoints").iterdir())
