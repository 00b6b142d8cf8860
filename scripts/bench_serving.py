"""Tokens per second of a rollout server beside those of its engine in the process.

    python scripts/bench_serving.py --model FOLDER [--random 1.5b] --json serving.json
    python scripts/bench_serving.py --rollout torch --requests 64 --tokens 64 --prompt 16

The server of ``ngrpo serve`` runs in this process, and its clients in another one. Measured in turn, on the same
prompts, keys and lengths: ``engine``, one call of the engine in the process with all requests; ``single``, as many
clients as requests, which ask for one rollout each at the same moment; ``group``, one client that asks for all in one
request. With ``--waves`` each client asks so many times, one after the other, and the engine gets all in one call;
several numbers are measured in turn on one server, and each has a JSON file of its own.
Medians over the rounds after a warm-up; ratios are taken within each round. The JSON has the phases of the last round,
in seconds since the clients began: when they had sent, when the engine got their requests, its rounds (start, rows,
tokens of the first step, steps), and when rollouts and answers came out. On a GPU the time in which a kernel ran is
given too, from a run of its own, unless ``--no-kernels``.
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
from typing import Any, NamedTuple

import torch
from bench_rollout import SHAPES, make_random_model
from kernel_times import busy_seconds, recorded_kernels
from rich import get_console
from rich.table import Table
from served_here import serving
from serving_phases import EngineWatch

from ngrpo.entrypoints.arguments import whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.exploration.random import request_key
from ngrpo.modeling.loading import ModelSource
from ngrpo.serving.fields import Fields
from ngrpo.serving.handling import Handling
from ngrpo.types.rollouts import Request, Sampling

EXPLORATION = {"name": "neighbor", "rate": 0.1}

Run = Callable[[], dict[str, float]]
"""Makes all rollouts; returns when it began, the seconds that it took, and what clients tell of their times."""


def main() -> None:
    """Measures and reports."""
    arguments = parse()
    if arguments.random:
        make_random_model(Path(arguments.model), arguments.random)
        ModelSource().tokenizer().save_pretrained(arguments.model)  # only its size matters: requests have token ids
    with serving(*settings_of(arguments)) as (handling, url):
        engine: Any = handling.model.engine
        watch = EngineWatch(engine, None if arguments.own_process else getattr(engine, "llm", None))
        for place, waves in enumerate(arguments.waves):
            measure(arguments, Served(handling, url, watch), waves, warm=place > 0)


class Served(NamedTuple):
    """The server.

    Attributes:
        handling: its parts.
        url: of it.
        watch: of its engine.
    """

    handling: Handling
    url: str
    watch: EngineWatch


def measure(arguments: argparse.Namespace, served: Served, waves: int, warm: bool) -> None:
    """Measures and reports so many waves; ``warm`` says that the server has made others before."""
    seconds: dict[str, list[float]] = {}
    phases: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        modes = modes_of(arguments, served, waves, Path(folder))
        for number in range(warm, arguments.rounds + 1):
            for name, run in modes.items():
                drop_cached_prompts(served.handling)
                served.watch.forget()
                told = run()
                phases[name] = told | served.watch.since(told["began"])
                if number:
                    seconds.setdefault(name, []).append(told["seconds"])
                    report(arguments, waves, seconds, phases, {})
        busy = {} if arguments.own_process or arguments.no_kernels else kernel_seconds(modes, served.handling)
    report(arguments, waves, seconds, phases, busy, last=True)


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--random", choices=list(SHAPES))
    parser.add_argument("--rollout", default="auto", choices=("auto", "torch", "vllm"))
    parser.add_argument("--requests", type=whole(1), default=256)
    parser.add_argument("--waves", type=whole(1), nargs="+", default=[1])
    parser.add_argument("--prompt", type=whole(1), default=256)
    parser.add_argument("--tokens", type=whole(1), default=256)
    parser.add_argument("--rounds", type=whole(1), default=3)
    parser.add_argument("--own-process", action="store_true")
    parser.add_argument("--no-kernels", action="store_true")
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


def modes_of(arguments: argparse.Namespace, served: Served, waves: int, folder: Path) -> dict[str, Run]:
    """Returns what is measured."""
    handling = served.handling
    prompts = prompts_of(arguments, arguments.requests * waves, handling.model.embedding_shape[0])
    requests = [Request(prompt, request_key(0, number)) for number, prompt in enumerate(prompts)]
    bound = handling.model.bind(handling.reader.choice(Fields({"exploration": EXPLORATION})))
    sampling = Sampling(1.0, arguments.tokens, stop_ids=())
    single = [
        [body(arguments, requests[client * waves + wave :][:1]) for wave in range(waves)]
        for client in range(arguments.requests)
    ]

    def engine() -> dict[str, float]:
        start = time.perf_counter()
        handling.model.engine.generate(requests, sampling, bound)
        return {"began": start, "seconds": time.perf_counter() - start}

    def clients(of_clients: list[list[Any]], name: str) -> Run:
        path = folder / f"{name}.json"
        path.write_text(json.dumps(of_clients))
        return lambda: asked(served.url, path, arguments.tokens * len(requests))

    group = [[body(arguments, requests)]]
    return {"engine": engine, "single": clients(single, "single"), "group": clients(group, "group")}


def prompts_of(arguments: argparse.Namespace, count: int, vocabulary: int) -> list[tuple[int, ...]]:
    """Returns random prompts, all different, so that no prefix is shared."""
    draw = random.Random(0)
    return [tuple(draw.randrange(10, vocabulary - 10) for _ in range(arguments.prompt)) for _ in range(count)]


def body(arguments: argparse.Namespace, requests: Sequence[Request]) -> dict[str, Any]:
    """Returns a body of ``/ngrpo/generate``."""
    return {
        "exploration": EXPLORATION,
        "sampling": {"temperature": 1.0, "max_new_tokens": arguments.tokens, "stop_ids": []},
        "requests": [{"prompt_ids": list(one.prompt_ids), "key": one.key} for one in requests],
    }


def asked(url: str, path: Path, tokens: int) -> dict[str, float]:
    """Has clients in another process ask; returns when they sent and were answered."""
    command = [sys.executable, str(Path(__file__).with_name("serving_clients.py")), url, str(path)]
    told: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    got, answers = told.pop("tokens"), told.pop("answers")
    if got != tokens or set(answers) != {"200"}:
        raise RuntimeError(f"the clients got answers {answers} and {got} tokens, and {tokens} were asked for")
    return told


def drop_cached_prompts(handling: Handling) -> None:
    """Makes vLLM prefill the same prompts again."""
    engine: Any = handling.model.engine
    if hasattr(engine, "llm") and hasattr(engine.llm, "reset_prefix_cache"):
        engine.llm.reset_prefix_cache()


def kernel_seconds(modes: dict[str, Run], handling: Handling) -> dict[str, float]:
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
    arguments: argparse.Namespace,
    waves: int,
    seconds: dict[str, list[float]],
    phases: dict[str, Any],
    busy: dict[str, float],
    last: bool = False,
) -> None:
    """Writes the JSON, and prints the table when all is measured."""
    tokens = arguments.requests * waves * arguments.tokens
    medians = {name: tokens / statistics.median(spent) for name, spent in seconds.items()}
    ratios = {
        name: statistics.median(base / own for base, own in zip(seconds["engine"], spent, strict=False))
        for name, spent in seconds.items()
    }
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    named = ("requests", "prompt", "tokens", "own_process", "rollout")
    result = {
        "card": card,
        "date": time.strftime("%Y-%m-%d"),
        "waves": waves,
        **{name: getattr(arguments, name) for name in named},
        "tokens_per_s": medians,
        "of_engine": ratios,
        "seconds": seconds,
        "kernels_s": busy,
        "phases": phases,
    }
    if arguments.json:
        several = len(arguments.waves) > 1
        path = arguments.json.with_stem(f"{arguments.json.stem}_{waves}") if several else arguments.json
        path.write_text(json.dumps(result, indent=1) + "\n")
    if not last:
        return
    title = f"{card}: {arguments.requests} clients x {waves} x {arguments.tokens} tokens"
    table = Table("mode", "median tokens/s", "of engine", "wall, s", "kernels, s", title=title)
    for name, median in medians.items():
        kernels = f"{busy[name]:.2f}" if name in busy else ""
        wall = " ".join(f"{one:.2f}" for one in seconds[name])
        table.add_row(name, f"{median:.0f}", f"{ratios[name]:.3f}", wall, kernels)
    get_console().print(table)


if __name__ == "__main__":
    run_main(main)
