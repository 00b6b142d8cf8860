"""Tokens and seconds of a batch of rollouts by scheduler: independent samples, and trees with common beginnings.

    python scripts/bench_trees.py --model FOLDER [--random 1.5b] --prompts 32 --group 8 --tokens 512 --json trees.json

In one engine with neighbor mixing, without stop tokens, so that every response has ``--tokens`` of them. Schedulers
alternate from round to round; medians after a warm-up. ``cached`` are the tokens of prompts and prefixes that vLLM's
prefix cache served, mixed ones among them; it is emptied before each batch.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from bench_rollout import SHAPES, make_random_model, prompts_of, start_engine
from rich import get_console
from rich.table import Table

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.exploration.random import request_key
from ngrpo.rollout.scheduling.at_positions import ForkAtMixtures, ForkAtSurprise
from ngrpo.rollout.scheduling.at_share import ForkAtShare
from ngrpo.rollout.scheduling.base import Scheduler
from ngrpo.rollout.scheduling.growth import grow
from ngrpo.rollout.scheduling.independent import IndependentSamples
from ngrpo.rollout.scheduling.segments import ForkAtSegments
from ngrpo.rollout.vllm.versions import installed_version
from ngrpo.types.paths import distinct_tokens
from ngrpo.types.rollouts import Request, Sampling


def main() -> None:
    """Measures and reports after each round."""
    arguments = parse()
    if arguments.random:
        make_random_model(Path(arguments.model), arguments.random)
    started = start_engine(arguments, arguments.tokens)
    engine, bound = started.engine, started.strategies["neighbor"]
    sampling = Sampling(1.0, arguments.tokens, stop_ids=())
    prompts = prompts_of(arguments, started.table[0])[: arguments.prompts]
    roots = [
        [Request(ids, request_key(0, number, sample)) for sample in range(arguments.group)]
        for number, ids in enumerate(prompts)
    ]
    found: dict[str, dict[str, Any]] = {name: {"seconds": []} for name in schedulers(arguments.tokens)}
    for measured in (False, *(True,) * arguments.rounds):
        for name, scheduler in schedulers(arguments.tokens).items():
            engine.llm.reset_prefix_cache()
            engine.figures()
            start = time.perf_counter()
            trees = grow(scheduler, roots, arguments.tokens, lambda asked: engine.generate(asked, sampling, bound))
            seconds = time.perf_counter() - start
            leaves = [leaf for tree in trees for leaf in tree.leaves]
            ends = [leaf.length for leaf in leaves]
            tokens = distinct_tokens([leaf.path for leaf in leaves], [0] * len(ends), ends)
            own = found[name]
            own |= {"tokens": tokens, "per_response": tokens / len(leaves), "cached": engine.figures().popitem()[1]}
            own |= {"rounds": max(tree.tree.rounds for tree in trees)}
            own["seconds"] += [seconds] if measured else []
        report(arguments, found) if measured else None
    engine.close()


def schedulers(tokens: int) -> dict[str, Scheduler]:
    """Returns what is compared."""
    return {
        "independent": IndependentSamples(),
        "at_share": ForkAtShare(branching=4, shares=(0.5,)),
        "surprise": ForkAtSurprise(branching=4),
        "mixtures": ForkAtMixtures(branching=4),
        "segments": ForkAtSegments(segment=tokens // 4, branching=2, first=2),
    }


def report(arguments: argparse.Namespace, found: dict[str, dict[str, Any]]) -> None:
    """Prints a table, and writes the figures."""
    table = Table("scheduler", "tokens a response", "fewer", "cached", "rounds", "seconds")
    whole = found["independent"]["tokens"]
    for name, own in found.items():
        own["fewer"] = 1 - own["tokens"] / whole
        seconds = statistics.median(own["seconds"])
        numbers = (f"{own['per_response']:.0f}", f"{own['fewer']:z.1%}", f"{own['cached']:.0f}", f"{own['rounds']}")
        table.add_row(name, *numbers, f"{seconds:.2f}")
    get_console().print(table)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    shape = {name: getattr(arguments, name) for name in ("prompts", "group", "tokens", "prompt", "random")}
    content = {"device": device, "vllm": installed_version(), **shape, "schedulers": found}
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(content, indent=1) + "\n")


def parse() -> argparse.Namespace:
    """Returns the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a model, or where to make one")
    parser.add_argument("--random", choices=list(SHAPES), help="make a random-weight model of this shape")
    for name, value in (("prompts", 32), ("group", 8), ("tokens", 512), ("prompt", 128), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", help="file for the figures")
    parser.set_defaults(eager=False, tensor_parallel=1, own_process=False)
    arguments = parser.parse_args()
    arguments.requests = arguments.prompts * arguments.group
    return arguments


if __name__ == "__main__":
    run_main(main)
