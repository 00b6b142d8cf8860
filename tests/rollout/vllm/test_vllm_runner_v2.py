"""Model Runner V2, the one that GPUs use, through Triton's interpreter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytest.importorskip("triton", reason="Triton is not installed")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.mark.parametrize(
    ("exploration", "tolerance"), [("neighbor", 1e-4), ("gaussian", 1e-3), ("hrpo", 1e-4), ("hidden", 1e-4)]
)
def test_preempted_and_chunked_rollouts_are_those_of_the_torch_engine(exploration: str, tolerance: float):
    script = Path(__file__).with_name("interpreted_v2.py")
    runner = {"TRITON_INTERPRET": "1", "VLLM_USE_V2_MODEL_RUNNER": "1"}
    done = subprocess.run(
        [sys.executable, str(script), exploration], env=os.environ | runner, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["state"] == "MixingModelState"
    assert report["preemptions"] >= 1
    assert report["mixed"] > 50
    assert report["error"] < tolerance
