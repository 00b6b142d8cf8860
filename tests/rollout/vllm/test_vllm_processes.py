"""Engines in other processes, under tensor parallelism or beside the trainer, make the rollouts of the torch engine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from places import ROOT

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm


def run(*command: str) -> str:
    # The workers import the engine's extension, and the script's helpers come with this folder.
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--own-process", "--restart"], id="own_process_killed"),
        pytest.param(["--restart"], id="in_process_closed", marks=pytest.mark.slow),
        pytest.param(["--workers", "2"], id="tensor_parallel", marks=pytest.mark.slow),
        pytest.param(["--workers", "2", "--restart"], id="one_of_two_workers_killed", marks=pytest.mark.slow),
        pytest.param(
            ["--workers", "2", "--exploration=gaussian"], id="tensor_parallel_gaussian", marks=pytest.mark.slow
        ),
        pytest.param(["--workers", "2", "--exploration=hrpo"], id="tensor_parallel_hrpo", marks=pytest.mark.slow),
        pytest.param(["--own-process", "--exploration=hrpo"], id="own_process_hrpo", marks=pytest.mark.slow),
        pytest.param(["--workers", "2", "--own-process"], id="both", marks=pytest.mark.slow),
    ],
)
def test_processes_make_the_rollouts_of_the_torch_engine(options, monkeypatch):
    """Also where vLLM is told to load other plugins than ours."""
    monkeypatch.setenv("VLLM_PLUGINS", "another")
    if torch.cuda.is_available() and "2" in options and torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    report = json.loads(run("tests/rollout/vllm/processes.py", *options).splitlines()[-1])
    assert min(report["loaded"], report["transferred"]) > 50


def test_a_process_of_its_own_follows_an_engine_in_this_process():
    """What vLLM read from the environment for the first engine says nothing about the second."""
    run("tests/rollout/vllm/second_engine.py")


@pytest.mark.slow
def test_each_of_two_training_processes_runs_an_engine(tmp_path):
    overrides = ["rollout=vllm", "rollout.engine.own_process=true", "exploration=neighbor", "algo=gspo", "debug=fast"]
    run("scripts/train.py", *overrides, "algo.optimizer_steps=2", "trainer.devices=2", f"hydra.run.dir={tmp_path}")
    assert list((tmp_path / "checkpoints").iterdir())


@pytest.mark.slow
def test_each_of_two_engines_gets_the_same_weights(tmp_path):
    words = ["scripts/bench_transfer.py", "--model", str(tmp_path / "model"), "--random", "tiny", "--rounds", "1"]
    run("-m", "torch.distributed.run", "--nproc-per-node=2", *words, "--json", str(tmp_path / "transfer.json"))
    made = json.loads((tmp_path / "transfer.json").read_text())
    assert (made["engines"], made["own_process"]) == (2, True)
    assert made["served"] not in ("default", "incomplete")
    assert made["seconds"] == made["rounds"][0] > 0
