"""Seconds of a weight transfer into vLLM, its checks included, and the memory that it takes.

    python scripts/bench_transfer.py --model FOLDER [--random 1.5b] [--own-process] --json transfer.json

The weights are those of the model itself, from this process's device; a warm-up, and medians over ``--rounds``. On a
GPU the most memory that the device's processes together took beyond what they had before is given. ``--random`` first
makes a random-weight Qwen2 in the folder: of the 1.5B shape (1.78 B parameters), of SmolLM2-135M's (163 M) or a tiny
one, each with a head of its own.
"""

import argparse
import json
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import torch
from bench_rollout import SHAPES, make_random_model
from rich import get_console

from ngrpo.entrypoints.arguments import whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.loading import ModelSource
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
    if arguments.random:
        make_random_model(Path(arguments.model), arguments.random)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    source = ModelSource(arguments.model, dtype="bfloat16" if device.type == "cuda" else "float32")
    engine = VllmEngine(
        source,
        NeighborMixing(rate=0.1, k=3),
        128,
        128,
        max_batch_size=16,
        enforce_eager=True,
        tensor_parallel_size=arguments.tensor_parallel,
        own_process=arguments.own_process,
    )
    engine.start(device)
    weights = list(source.load().to(device).named_parameters())
    measured = [transfer(engine, weights) for _ in range(arguments.rounds + 1)][1:]
    engine.close()
    result = {
        "card": torch.cuda.get_device_name() if device.type == "cuda" else "CPU",
        "own_process": arguments.own_process,
        "tensor_parallel": arguments.tensor_parallel,
        "gib": sum(tensor.nbytes for _, tensor in weights) / 2**30,
        "seconds": statistics.median(seconds for seconds, _ in measured),
        "rounds": [seconds for seconds, _ in measured],
        "memory_gib": max(taken for _, taken in measured),
    }
    get_console().print(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


def transfer(engine: VllmEngine, weights: list[Any]) -> tuple[float, float]:
    """Transfers once; returns the seconds, and the device memory in GiB that was taken at most."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    before, most, done = free(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.002):
            most = max(most, before - free())

    watching = threading.Thread(target=watch)
    watching.start()
    start = time.perf_counter()
    engine.sync_weights(weights)
    seconds = time.perf_counter() - start
    done.set()
    watching.join()
    return seconds, most / 2**30


def free() -> int:
    """Returns the free bytes of the GPU, 0 without one."""
    return torch.cuda.mem_get_info()[0] if torch.cuda.is_available() else 0


if __name__ == "__main__":
    run_main(main)
