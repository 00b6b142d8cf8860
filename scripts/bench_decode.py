"""The time of a decode step of the torch engine: on a GPU beside its kernels, on a CPU beside transformers' generate.

    python scripts/bench_decode.py --model FOLDER [--random 1.5b] --rows 32 128 256 --burst 1 32 --json decode.json
    python scripts/bench_decode.py --model FOLDER [--random 6m] --rows 64 --prompt 32 --tokens 192 --json decode.json

On a GPU a step's wall time stands beside the time in which a kernel ran, for each ``--burst`` (decode steps between two
looks of the host; 1 captures nothing), with ``--compile`` of compiled steps. Capturing is part of the wall time, and
``capture`` says how long one took. On a CPU it is tokens per CPU second of the engine and of `generate` in one thread,
in turn, without stop tokens.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import transformers
from bench_rollout import SHAPES, made_requests, make_random_model, prompts_of
from decode_steps import DecodeStep, Generate, measured_steps, step_table
from rich.console import Console
from transformers import AutoModelForCausalLM

from ngrpo.entrypoints.arguments import whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.torch_engine import burst as bursts
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Sampling

TOKEN = BoundExploration(TokenSampling(), {}, ())


def main() -> None:
    """Measures and reports."""
    arguments = parse()
    if arguments.random:
        make_random_model(Path(arguments.model), arguments.random)
    measure_gpu(arguments) if torch.cuda.is_available() else measure_cpu(arguments)


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--random", choices=list(SHAPES))
    parser.add_argument("--rows", nargs="+", type=whole(1), default=[32, 128, 256])
    parser.add_argument("--burst", nargs="+", type=whole(1), default=[1, 32])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--prompt", type=whole(1), default=256)
    parser.add_argument("--tokens", type=whole(1), default=96)
    parser.add_argument("--rounds", type=whole(1), default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    arguments.requests = max(arguments.rows)
    return arguments


def started(arguments: argparse.Namespace, device: torch.device) -> TorchEngine:
    """Returns the engine, running."""
    source = ModelSource(arguments.model, dtype="bfloat16" if device.type == "cuda" else "float32")
    engine = TorchEngine(source, arguments.requests, compile=arguments.compile)
    engine.start(device)
    return engine


def measure_gpu(arguments: argparse.Namespace) -> None:
    """Measures steps at each number of rows and each length of a burst; reports after each."""
    engine, made = started(arguments, torch.device("cuda")), []
    captures = timed_captures()
    # One prompt for all, so that a call is little more than its steps.
    prompt = prompts_of(arguments, len(engine.embedding()))[0]
    requests = made_requests([prompt] * arguments.requests)

    def generate(rows: int, tokens: int) -> None:
        engine.generate(requests[:rows], Sampling(1.0, tokens, stop_ids=()), TOKEN)

    modes: dict[str, Generate] = {"compiled" if arguments.compile else "eager": generate}
    for burst in arguments.burst:
        engine.burst = burst
        for steps in measured_steps(modes, arguments.rows, burst, arguments.tokens, arguments.rounds):
            made += steps
            report_gpu(arguments, made, captures)


def timed_captures() -> list[float]:
    """Returns a list that gets the milliseconds of every capture from now on."""
    taken: list[float] = []
    capture = bursts.captured

    def timed(step: Callable[[], None], pool: Any) -> bursts.Replay:
        start = time.perf_counter()
        graph = capture(step, pool)
        taken.append(1e3 * (time.perf_counter() - start))
        return graph

    bursts.captured = timed
    return taken


def report_gpu(arguments: argparse.Namespace, made: list[DecodeStep], captures: list[float]) -> None:
    """Prints the table so far and writes the JSON."""
    card, context = torch.cuda.get_device_name(), arguments.prompt + arguments.tokens // 2
    capture = statistics.median(captures) if captures else None
    Console(width=120).print(step_table(made, f"{card}: a decode step of the torch engine, mean context {context}"))
    print("capture, ms:", capture, "of", len(captures), flush=True)
    write(arguments, {"card": card, "context": context, "capture_ms": capture, "steps": [asdict(one) for one in made]})


def measure_cpu(arguments: argparse.Namespace) -> None:
    """Measures tokens per CPU second, engine and `generate` in turn."""
    torch.set_num_threads(1)
    engine = started(arguments, torch.device("cpu"))
    model = AutoModelForCausalLM.from_pretrained(arguments.model).eval()
    prompts = prompts_of(arguments, len(engine.embedding()))
    requests, ids = made_requests(prompts), torch.tensor(prompts)
    length = {"max_new_tokens": arguments.tokens, "min_new_tokens": arguments.tokens}

    def ours() -> None:
        engine.generate(requests, Sampling(1.0, arguments.tokens, stop_ids=()), TOKEN)

    @torch.no_grad()
    def theirs() -> None:
        model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, pad_token_id=0, **length)

    speeds: dict[str, list[float]] = {"torch engine": [], "generate": []}
    for number in range(arguments.rounds + 1):
        for name, run in zip(speeds, (ours, theirs), strict=True):
            start = time.process_time()
            run()
            if number:
                speeds[name].append(len(prompts) * arguments.tokens / (time.process_time() - start))
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    ratio = statistics.median(a / b for a, b in zip(*speeds.values(), strict=True))
    for name, speed in medians.items():
        print(f"{name}: {speed:.0f} tokens per CPU second")
    print(f"ratio, median of the rounds: {ratio:z.2f}")
    parameters = sum(weight.numel() for weight in model.parameters())
    sizes = {"parameters": parameters, "rows": len(prompts), "prompt": arguments.prompt, "tokens": arguments.tokens}
    write(arguments, {**sizes, "tokens_per_cpu_second": medians, "rounds": speeds, "ratio": ratio})


def write(arguments: argparse.Namespace, result: dict[str, Any]) -> None:
    """Writes the JSON, with what the numbers depend on."""
    if arguments.json:
        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
        more = {"date": time.strftime("%Y-%m-%d"), **versions}
        arguments.json.write_text(json.dumps(more | result, indent=1) + "\n")


if __name__ == "__main__":
    run_main(main)
