"""Two machines, here two launchers on the loopback, train what two processes of one machine train."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import torch
from forked import succeed
from places import ROOT
from safetensors.torch import load_file

SETTINGS = [
    "exploration=neighbor", "algo=grpo", "debug=fast", "trainer.accelerator=cpu", "callbacks.evaluation.every=0",
    "callbacks.checkpoint=null", "trainer.iterations=1", "algo.kl_coef=0.1",
    "algo.optimizer_steps=2", "reward.workers=1",
]  # fmt: skip


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def launched(nodes: int, folder: Path) -> Path:
    """Starts a launcher a node, each with one process; returns the run's folder."""
    endpoint = f"127.0.0.1:{free_port()}"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", str(nodes), "--nproc-per-node", "1",
        "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "scripts/train.py", *SETTINGS,
        f"trainer.num_nodes={nodes}", "trainer.devices=1", f"hydra.run.dir={folder}",
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "OMP_NUM_THREADS": "1"}
    launchers = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(nodes)
    ]
    try:
        errors = [launcher.communicate(timeout=240)[1] for launcher in launchers]
    finally:
        for launcher in launchers:
            launcher.kill()
    assert [launcher.returncode for launcher in launchers] == [0] * nodes, "\n".join(errors)[-3000:]
    return folder


def test_two_nodes_train_what_two_processes_train(tmp_path: Path):
    one, two = tmp_path / "one", launched(2, tmp_path / "two")
    succeed("train.py", *SETTINGS, "trainer.devices=2", f"hydra.run.dir={one}", ranks=2)
    expected, made = (load_file(folder / "model" / "model.safetensors") for folder in (one, two))
    assert expected.keys() == made.keys()
    assert all(torch.equal(tensor, made[name]) for name, tensor in expected.items())
