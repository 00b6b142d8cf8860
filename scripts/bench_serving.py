"""Tokens per second of a rollout server beside those of its engine in the process.

    python scripts/bench_serving.py --model FOLDER [--random 1.5b] --json serving.json
    python scripts/bench_serving.py --rollout torch --requests 64 --tokens 64 --prompt 16

The server of ``ngrpo serve`` runs in this process, and its clients in another one. Measured in turn, on the same
prompts, keys and lengths: ``engine``, one call of the engine in the process with all requests; ``single``, as many
clients as requests, which ask for one rollout each at the same moment; ``group``, one client that asks for all in one
request. With ``--waves`` each client asks so many times, one after the other, and the engine gets all in one call.
Medians over the rounds after a warm-up; ratios are taken within each round. On a GPU the time in which a kernel ran is
given too, from a run of its own.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from bench_rollout import SHAPES, make_random_model
from kernel_times import busy_seconds, recorded_kernels
from rich import get_console
from rich.table import Table
from served_here import serving

from ngrpo.entrypoints.arguments import whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.exploration.random import request_key
from ngrpo.modeling.loading import ModelSource
from ngrpo.serving.fields import Fields
from ngrpo.serving.handling import Handling
from ngrpo.types.rollouts import Request, Sampling

EXPLORATION = {"name": "neighbor", "rate": 0.1}


def main() -> None:
    """Measures and reports."""
    arguments = parse()
    if arguments.random:
        make_random_model(Path(arguments.model), arguments.random)
        ModelSource().tokenizer().save_pretrained(arguments.model)  # only its size matters: requests have token ids
    with serving(*settings_of(arguments)) as (handling, url), tempfile.TemporaryDirectory() as folder:
        modes = modes_of(arguments, handling, url, Path(folder))
        seconds: dict[str, list[float]] = {name: [] for name in modes}
        for number in range(arguments.rounds + 1):
            for name, run in modes.items():
                drop_cached_prompts(handling)
                spent = run()
                if number:
                    seconds[name].append(spent)
                    report(arguments, seconds, {})
        busy = {} if arguments.own_process else kernel_seconds(modes, handling)
        report(arguments, seconds, busy, last=True)


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--random", choices=list(SHAPES))
    parser.add_argument("--rollout", default="auto", choices=("auto", "torch", "vllm"))
    parser.add_argument("--requests", type=whole(1), default=256)
    parser.add_argument("--waves", type=whole(1), default=1)
    parser.add_argument("--prompt", type=whole(1), default=256)
    parser.add_argument("--tokens", type=whole(1), default=256)
    parser.add_argument("--rounds", type=whole(1), default=3)
    parser.add_argument("--own-process", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("settings", nargs="*", help="further ones of conf/serve.yaml, such as rollout.engine.burst=32")
    return parser.parse_args()


def settings_of(arguments: argparse.Namespace) -> list[str]:
    """Returns the settings of the server."""
    return [
        f"model.path={arguments.model}",
        "exploration=neighbor",
        f"rollout={arguments.rollout}",
        f"rollout.engine.max_batch_size={arguments.requests}",
        f"rollout.max_new_tokens={arguments.tokens}",
        f"data.max_prompt_tokens={arguments.prompt}",
        *(["rollout.engine.own_process=true"] if arguments.own_process else []),
        *(["rollout.engine.check=false"] if arguments.rollout == "vllm" else []),
        *arguments.settings,
    ]


def modes_of(
    arguments: argparse.Namespace, handling: Handling, url: str, folder: Path
) -> dict[str, Callable[[], float]]:
    """Returns what is measured: functions that return seconds."""
    prompts = prompts_of(arguments, handling.model.embedding_shape[0])
    requests = [Request(prompt, request_key(0, number)) for number, prompt in enumerate(prompts)]
    bound = handling.model.bind(handling.reader.choice(Fields({"exploration": EXPLORATION})))
    sampling = Sampling(1.0, arguments.tokens, stop_ids=())
    single = [
        [body(arguments, requests[client * arguments.waves + wave :][:1]) for wave in range(arguments.waves)]
        for client in range(arguments.requests)
    ]

    def engine() -> float:
        start = time.perf_counter()
        handling.model.engine.generate(requests, sampling, bound)
        return time.perf_counter() - start

    def clients(of_clients: list[list[Any]], name: str) -> Callable[[], float]:
        path = folder / f"{name}.json"
        path.write_text(json.dumps(of_clients))
        return lambda: asked(url, path, arguments.tokens * len(requests))

    group = [[body(arguments, requests)]]
    return {"engine": engine, "single": clients(single, "single"), "group": clients(group, "group")}


def prompts_of(arguments: argparse.Namespace, vocabulary: int) -> list[tuple[int, ...]]:
    """Returns random prompts, all different, so that no prefix is shared."""
    draw, count = random.Random(0), arguments.requests * arguments.waves
    return [tuple(draw.randrange(10, vocabulary - 10) for _ in range(arguments.prompt)) for _ in range(count)]


def body(arguments: argparse.Namespace, requests: Sequence[Request]) -> dict[str, Any]:
    """Returns a body of ``/ngrpo/generate``."""
    return {
        "exploration": EXPLORATION,
        "sampling": {"temperature": 1.0, "max_new_tokens": arguments.tokens, "stop_ids": []},
        "requests": [{"prompt_ids": list(one.prompt_ids), "key": one.key} for one in requests],
    }


def asked(url: str, path: Path, tokens: int) -> float:
    """Has clients in another process ask; returns their seconds."""
    command = [sys.executable, str(Path(__file__).with_name("serving_clients.py")), url, str(path)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    if told["tokens"] != tokens or set(told["answers"]) != {"200"}:
        raise RuntimeError(f"the clients got {told}, and {tokens} tokens were asked for")
    return float(told["seconds"])


def drop_cached_prompts(handling: Handling) -> None:
    """Makes vLLM prefill the same prompts again."""
    engine: Any = handling.model.engine
    if hasattr(engine, "llm") and hasattr(engine.llm, "reset_prefix_cache"):
        engine.llm.reset_prefix_cache()


def kernel_seconds(modes: dict[str, Callable[[], float]], handling: Handling) -> dict[str, float]:
    """Runs every mode once more; returns for how long a kernel ran, of no mode without a GPU."""
    busy = {}
    for name, run in modes.items():
        drop_cached_prompts(handling)
        with recorded_kernels() as kernels:
            run()
        if kernels:
            busy[name] = busy_seconds(kernels)
    return busy


def report(
    arguments: argparse.Namespace, seconds: dict[str, list[float]], busy: dict[str, float], last: bool = False
) -> None:
    """Writes the JSON, and prints the table when all is measured."""
    tokens = arguments.requests * arguments.waves * arguments.tokens
    whole_rounds = min(map(len, seconds.values()))
    if not whole_rounds:
        return
    medians = {name: tokens / statistics.median(spent) for name, spent in seconds.items()}
    ratios = {
        name: statistics.median(base / own for base, own in zip(seconds["engine"], spent, strict=False))
        for name, spent in seconds.items()
    }
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    named = ("requests", "waves", "prompt", "tokens", "own_process", "rollout")
    result = {
        "card": card,
        "date": time.strftime("%Y-%m-%d"),
        **{name: getattr(arguments, name) for name in named},
        "tokens_per_s": medians,
        "of_engine": ratios,
        "seconds": seconds,
        "kernels_s": busy,
    }
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    if not last:
        return
    title = f"{card}: {arguments.requests} clients x {arguments.waves} x {arguments.tokens} tokens"
    table = Table("mode", "median tokens/s", "of engine", "wall, s", "kernels, s", title=title)
    for name, median in medians.items():
        kernels = f"{busy[name]:.2f}" if name in busy else ""
        wall = " ".join(f"{one:.2f}" for one in seconds[name])
        table.add_row(name, f"{median:.0f}", f"{ratios[name]:.3f}", wall, kernels)
    get_console().print(table)


if __name__ == "__main__":
    run_main(main)
