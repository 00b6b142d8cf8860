"""float16, bfloat16 and float32 beside each other: engine against trainer, tokens per second, and the demo's learning.

    python scripts/bench_precision.py --work /tmp/precision --random 1.5b --engine vllm --json precision.json

For each 16-bit format a process of its own makes rollouts with exploration, scores them again as the trainer does,
over float32 parameters, and takes the difference of the log-probs at mixed and at plain positions; then it times
rollouts and updates. The demo is trained in each format meanwhile, with the same format in trainer and engine, and
some seeds, ``--learning-jobs`` runs at a time. Those runs are halted while something is timed.

    python scripts/bench_precision.py --work /tmp/p --learning-only --json curves.json experiment=study_smollm2

does nothing else, here with another model: further arguments are settings of those runs.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from bench_rollout import SHAPES, make_random_model, prompts_of
from bench_update import Run, measured
from rich import get_console

from ngrpo.entrypoints.arguments import whole
from ngrpo.entrypoints.check_replay_command import compare, make_strategy
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.random import request_key
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import DTYPES, ModelSource
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.precision import computing_in
from ngrpo.report.run_store import RunStore
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Request, Rollout, Sampling

PRECISION = {"float32": "32-true", "bfloat16": "bf16-mixed", "float16": "16-mixed"}
"""``trainer.precision`` that computes in a dtype over float32 parameters."""
HALF = ("bfloat16", "float16")
ROUNDS = 3


def main() -> None:
    """Measures and reports."""
    arguments = parse()
    if arguments.measure:
        measure(arguments, arguments.measure)
        return
    arguments.work.mkdir(parents=True, exist_ok=True)
    if arguments.random:
        make_random_model(Path(arguments.model), arguments.random)
    until = time.monotonic() + arguments.limit
    with ThreadPoolExecutor(arguments.learning_jobs) as pool:
        for seed in range(arguments.seeds):
            for dtype in PRECISION:
                pool.submit(learn, arguments, dtype, seed, until)
        for dtype in () if arguments.learning_only else HALF:
            if status := subprocess.run([sys.executable, __file__, *sys.argv[1:], "--measure", dtype]).returncode:
                get_console().print(f"{dtype}: ended with {status}")
            write(arguments)
    write(arguments)


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for the random model, runs and parts")
    parser.add_argument("--random", choices=list(SHAPES), help="a model of random weights; else one lies there already")
    parser.add_argument("--engine", choices=["torch", "vllm"], default="vllm")
    parser.add_argument("--requests", type=whole(1), default=32)
    parser.add_argument("--prompt", type=whole(1), default=64)
    parser.add_argument("--tokens", type=whole(1), default=512)
    parser.add_argument("--update-sequences", type=whole(8), default=16, help="of 2,048 tokens")
    parser.add_argument("--shape", default="1.5b", help="of the update's model")
    parser.add_argument("--seeds", type=whole(0), default=3)
    parser.add_argument("--iterations", type=whole(1), default=40, help="of the demo")
    parser.add_argument("--limit", type=whole(1), default=3600, help="seconds, after which the demo's runs are ended")
    parser.add_argument("--learning-jobs", type=whole(1), default=3, help="of those runs at a time")
    parser.add_argument("--learning-only", action="store_true", help="measure nothing else")
    parser.add_argument("--measure", choices=HALF, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("settings", nargs="*", help="of the runs that learn, such as algo=grpo")
    arguments = parser.parse_intermixed_args()
    arguments.model = str(arguments.work / "model")
    return arguments


@contextmanager
def alone(work: Path) -> Iterator[None]:
    """Halts the demo's runs meanwhile."""
    running = [int(file.read_text()) for file in work.glob("demo-*.pid")]
    for number in running:
        os.kill(number, signal.SIGSTOP)
    try:
        yield
    finally:
        for number in running:
            os.kill(number, signal.SIGCONT)


def learn(arguments: argparse.Namespace, dtype: str, seed: int, until: float) -> None:
    """Trains the demo in one format with one seed, and ends what takes too long."""
    if time.monotonic() > until:
        return
    run = demo_run(arguments, dtype, seed)
    file = arguments.work / f"demo-{dtype}-{seed}.pid"
    file.write_text(str(run.pid))
    with suppress(subprocess.TimeoutExpired):
        run.wait(max(0.1, until - time.monotonic()))
    file.unlink()
    run.kill()


def demo_run(arguments: argparse.Namespace, dtype: str, seed: int) -> subprocess.Popen[bytes]:
    """Starts the README's first run in one format."""
    folder = arguments.work / f"demo-{dtype}-{seed}"
    settings = [
        "exploration=neighbor", "algo=gspo", f"seed={seed}", f"trainer.precision={PRECISION[dtype]}", "rollout=torch",
        f"rollout.engine.dtype={dtype}", f"trainer.iterations={arguments.iterations}", "callbacks.checkpoint=null",
        "callbacks.evaluation=null", "callbacks.export=null", "reward.workers=1",
        *arguments.settings,
    ]  # fmt: skip
    script = Path(__file__).with_name("train.py")
    with Path(f"{folder}.log").open("w") as log:
        command = [sys.executable, str(script), *settings, f"hydra.run.dir={folder}"]
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def curve(folder: Path) -> dict[str, Any]:
    """Returns what a run of the demo learned, iteration by iteration."""
    stored = RunStore(folder).iterations()
    return {
        "reward": [one.metrics["train/reward"] for one in stored],
        "mismatch_mean": [one.metrics["rollout/mismatch_mean"] for one in stored],
        "overflowed_steps": sum(one.metrics.get("policy/overflowed_steps", 0.0) for one in stored),
    }


def measure(arguments: argparse.Namespace, dtype: str) -> None:
    """Compares one format's engine and trainer, then times both; writes after each part."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    source, strategy = ModelSource(arguments.model, dtype=dtype), make_strategy("neighbor")
    engine = make_engine(arguments, source, strategy)
    engine.start(device)
    size = source.config().vocab_size
    bound = bind(strategy, engine.embedding().to(device), Vocabulary(size, frozenset(), {}))
    requests = [Request(ids, request_key(0, number)) for number, ids in enumerate(prompts_of(arguments, size))]
    sampling = Sampling(1.0, arguments.tokens, ())
    rollouts = engine.generate(requests, sampling, bound)
    model = ScoringModel(ModelSource(arguments.model).load(), bound.parameters).to(device)
    with computing_in(model, DTYPES[dtype]):
        found = compare(model, strategy, 1.0, rollouts)
    del model
    part: dict[str, Any] = {
        name: {"tokens": len(d), "mean": float(d.mean()), "max": float(d.max())} for name, d in found.items()
    }
    save(arguments, dtype, part)
    with alone(arguments.work):
        part["rollout_tokens_per_s"] = rollout_speed(lambda: engine.generate(requests, sampling, bound))
        save(arguments, dtype, part)
        engine.close()
        lengths = (2048,) * arguments.update_sequences
        run = Run(arguments.shape, lengths, 16384, "full", False, PRECISION[dtype], False, ROUNDS)
        part["update_tokens_per_s"] = measured(run, 989.0).tokens_per_s
        save(arguments, dtype, part)


def make_engine(arguments: argparse.Namespace, source: ModelSource, strategy: Exploration) -> RolloutEngine:
    """Returns the engine asked for, not started; a second one and the demo's runs are beside it."""
    if arguments.engine == "torch":
        return TorchEngine(source)
    from ngrpo.rollout.vllm.engine import VllmEngine

    sizes = arguments.prompt, arguments.tokens, arguments.requests
    return VllmEngine(source, strategy, *sizes, dtype=source.dtype, gpu_memory_utilization=0.15)


def rollout_speed(generate: Callable[[], list[Rollout]]) -> float:
    """Returns the median of generated tokens a second over some rounds."""
    speeds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        made = generate()
        speeds.append(sum(one.length for one in made) / (time.perf_counter() - start))
    return statistics.median(speeds)


def save(arguments: argparse.Namespace, dtype: str, part: dict[str, Any]) -> None:
    """Prints what one format gave so far and keeps it."""
    get_console().print({dtype: part})
    (arguments.work / f"{dtype}.json").write_text(json.dumps(part))


def write(arguments: argparse.Namespace) -> None:
    """Puts what there is so far together."""
    parts = {dtype: arguments.work / f"{dtype}.json" for dtype in HALF}
    runs = {f"{dtype}-{seed}": arguments.work / f"demo-{dtype}-{seed}" for dtype in PRECISION for seed in range(9)}
    result = {
        "card": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "requests": arguments.requests,
        "tokens": arguments.tokens,
        "formats": {dtype: json.loads(file.read_text()) for dtype, file in parts.items() if file.exists()},
        "demo": {name: curve(folder) for name, folder in runs.items() if (folder / "record").exists()},
    }
    arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    run_main(main)
