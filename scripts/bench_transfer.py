"""Seconds of a weight transfer into vLLM, its checks included, and the memory that it takes.

    python scripts/bench_transfer.py --model FOLDER [--random 1.5b] [--own-process] --json transfer.json
    torchrun --nproc-per-node 2 scripts/bench_transfer.py --model FOLDER [--random 7b] --json transfer_2.json

The weights are those of the model itself, from this process's device; a warm-up, and medians over ``--rounds``. Under
torchrun each process has an engine process on its own device, and the weights are float32 shards, as in training, which
are gathered as they are sent: a round ends when every engine has checked its weights and all serve the same ones. On a
GPU the most memory that the fullest device's processes together took beyond what they had before is given. ``--random``
first makes a random-weight Qwen2 in the folder: of the 7B shape (7.6 B parameters), the 1.5B shape (1.78 B), of
SmolLM2-135M's (163 M) or a tiny one, each with a head of its own.
"""

import argparse
import json
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from bench_rollout import SHAPES, make_random_model
from rich import get_console
from torch import Tensor, distributed
from torch.distributed.device_mesh import init_device_mesh

from ngrpo.distributed.collectives import gathered_everywhere, world_size
from ngrpo.entrypoints.arguments import whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.errors import RunError
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.sharding import named_weights, shard
from ngrpo.rollout.vllm.engine import VllmEngine


def main() -> None:
    """Measures and reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--random", choices=list(SHAPES))
    parser.add_argument("--rounds", type=whole(1), default=5)
    parser.add_argument("--tensor-parallel", type=whole(1), default=1)
    parser.add_argument("--own-process", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    several = "WORLD_SIZE" in os.environ
    device = joined() if several else torch.device("cuda" if torch.cuda.is_available() else "cpu")
    first = not several or distributed.get_rank() == 0
    if arguments.random and first:
        make_random_model(Path(arguments.model), arguments.random)
    gathered_everywhere(None)  # the folder is there
    own_process = arguments.own_process or several
    served = "bfloat16" if device.type == "cuda" else "float32"
    source = ModelSource(arguments.model, dtype="float32" if several else served)
    engine = VllmEngine(
        source,
        NeighborMixing(rate=0.1, k=3),
        128,
        128,
        max_batch_size=16,
        enforce_eager=True,
        tensor_parallel_size=arguments.tensor_parallel,
        own_process=own_process,
    )
    engine.start(device)
    weights = trained(source, device, several)
    measured = [transfer(engine, weights) for _ in range(arguments.rounds + 1)][1:]
    versions = gathered_everywhere(engine.weight_version)
    if len(set(versions)) > 1:
        raise RunError(f"the engines serve different weights: {', '.join(versions)}")
    engine.close()
    result = {
        "card": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
        "own_process": own_process,
        "engines": world_size(),
        "tensor_parallel": arguments.tensor_parallel,
        "served": versions[0],
        "gib": sum(tensor.numel() for _, tensor in weights()) * engine.dtype.itemsize / 2**30,
        "seconds": statistics.median(seconds for seconds, _ in measured),
        "rounds": [seconds for seconds, _ in measured],
        "memory_gib": max(taken for _, taken in measured),
    }
    if first:
        get_console().print(result)
        if arguments.json:
            arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    if several:
        distributed.destroy_process_group()


def joined() -> torch.device:
    """Joins the processes that torchrun started; returns the device of this one."""
    on_gpu = torch.cuda.is_available()
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    # The stores that the engines open are their own, as in training.
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    if not on_gpu:
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def trained(source: ModelSource, device: torch.device, sharded: bool) -> Callable[[], Iterable[tuple[str, Tensor]]]:
    """Returns what yields the whole weights by their names, every time (a collective when they are sharded)."""
    model = ScoringModel(source.load().to(device))
    if sharded:
        mesh = init_device_mesh(device.type, (world_size(), 1), mesh_dim_names=("data_parallel", "tensor_parallel"))
        shard(model, mesh, None)
    return lambda: named_weights(model, None)


def transfer(engine: VllmEngine, weights: Callable[[], Iterable[tuple[str, Tensor]]]) -> tuple[float, float]:
    """Transfers once; returns the slowest engine's seconds, and the GiB of memory that the fullest device gave."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    before, most, done = free(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.002):
            most = max(most, before - free())

    watching = threading.Thread(target=watch)
    gathered_everywhere(None)  # all begin at once
    watching.start()
    start = time.perf_counter()
    engine.sync_weights(weights())
    seconds = time.perf_counter() - start
    done.set()
    watching.join()
    slowest, fullest = (max(column) for column in zip(*gathered_everywhere((seconds, most / 2**30)), strict=True))
    return slowest, fullest


def free() -> int:
    """Returns the free bytes of this process's GPU, 0 without one."""
    if not torch.cuda.is_available():
        return 0
    return torch.cuda.mem_get_info(int(os.environ.get("LOCAL_RANK", 0)))[0]  # a thread's current one is the first


if __name__ == "__main__":
    run_main(main)
