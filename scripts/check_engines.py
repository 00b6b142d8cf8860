"""Rollouts of the same keys by one engine and by several, in float32: they must be equal.

    python scripts/check_engines.py --work /tmp/engines --json engines.json
    python scripts/check_engines.py --work /tmp/engines --accelerator cpu --engines torch

The demo model makes the first batch of a training with one process, and with ``--devices`` processes that have an
engine each. Tokens must be the same; log-probs differ by what float32 rounds, since a row's last bits depend on the
rows that it is computed with.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from rich import get_console

from ngrpo.entrypoints.arguments import whole
from ngrpo.entrypoints.error_handling import run_main

ROOT = Path(__file__).parents[1]


class KeepRollouts(Callback):
    """Writes the tokens and log-probs of each rollout of this rank, by key.

    Args:
        folder: of the files, one a rank.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Runs after the rollouts are made."""
        self.folder.mkdir(parents=True, exist_ok=True)
        made = {r.key: (r.response_ids, r.log_probs) for r in batch.experience.rollouts}
        torch.save(made, self.folder / f"{trainer.global_rank}.pt")


Rollouts = dict[int, tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Comparison:
    """What was found.

    Attributes:
        engine: torch or vllm.
        devices: D, compared with one.
        rollouts: of each.
        equal: rollouts of equal tokens.
        log_prob_difference: the largest over the equal ones, in nats.
    """

    engine: str
    devices: int
    rollouts: int
    equal: int
    log_prob_difference: float


def rollouts_of(arguments: argparse.Namespace, engine: str, devices: int) -> Rollouts:
    """Trains for an iteration and returns its rollouts."""
    run = arguments.work / f"{engine}-{devices}"
    overrides = [
        "exploration=neighbor", "exploration.rate=0.5", "debug=fast", "trainer.iterations=1",
        "algo.prompts_per_batch=16", "rollout.group_size=8", "reward.workers=1", "callbacks.evaluation=null",
        "callbacks.checkpoint=null", "callbacks.export=null", "callbacks.run_record=null",
        f"trainer.accelerator={arguments.accelerator}", f"trainer.devices={devices}", "allow_targets=[check_engines]",
        "+callbacks.keep._target_=check_engines.KeepRollouts", f"+callbacks.keep.folder={run}/kept",
        f"hydra.run.dir={run}",
    ]  # fmt: skip
    if engine == "vllm":
        overrides += ["rollout=vllm", "rollout.engine.own_process=true", "rollout.engine.dtype=float32"]
        overrides += ["rollout.engine.enforce_eager=true", "rollout.engine.gpu_memory_utilization=0.05"]
        overrides += ["+rollout.engine.options.kv_cache_memory_bytes=1000000000"] * (arguments.accelerator == "gpu")
    with Path(f"{run}.out").open("w") as out:
        command = [sys.executable, "scripts/train.py", *overrides]
        subprocess.run(command, cwd=ROOT, env=os.environ, stdout=out, stderr=subprocess.STDOUT, check=True, timeout=400)
    made: Rollouts = {}
    for number in range(devices):
        made |= torch.load(run / "kept" / f"{number}.pt", weights_only=True)
    return made


def compared(arguments: argparse.Namespace, engine: str) -> Comparison:
    """Makes both at a time and compares them."""
    with ThreadPoolExecutor(2) as pool:
        one, several = pool.map(lambda n: rollouts_of(arguments, engine, n), (1, arguments.devices))
    assert one.keys() == several.keys()
    equal = [key for key in one if torch.equal(one[key][0], several[key][0])]
    gap = max((float((one[key][1] - several[key][1]).abs().max()) for key in equal), default=0.0)
    return Comparison(engine, arguments.devices, len(one), len(equal), gap)


def main() -> None:
    """Compares and reports; status 1 if tokens differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--accelerator", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--devices", type=whole(2), default=2)
    parser.add_argument("--engines", nargs="+", choices=["torch", "vllm"], default=["torch", "vllm"])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    arguments.work = arguments.work.resolve()
    arguments.work.mkdir(parents=True, exist_ok=True)
    found = []
    for engine in arguments.engines:
        found.append(compared(arguments, engine))
        card = torch.cuda.get_device_name() if arguments.accelerator == "gpu" else "CPU"
        made = {"card": card, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
        made |= {"comparisons": [asdict(one) for one in found]}
        get_console().print_json(json.dumps(made))
        if arguments.json:
            arguments.json.write_text(json.dumps(made, indent=2) + "\n")
    raise SystemExit(int(any(one.equal < one.rollouts for one in found)))


if __name__ == "__main__":
    run_main(main)
