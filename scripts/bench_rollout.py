"""Tokens per second of vLLM, plain and with exploration, in one engine and one process.

    python scripts/bench_rollout.py --model FOLDER [--random 1.5b] --json bench.json

The modes alternate from round to round on the same prompts and lengths, so that drift of the host falls on all of them;
medians over the rounds after a warm-up. ``plain`` is vLLM's own sampler without log-probs in the very engine that also
runs the strategies, ``logprobs=0`` the same with vLLM's log-probs; ``token`` and ``neighbor`` are this project's, with
records and log-probs. Ratios are taken within each round, between runs next to each other, and their median is given:
where the host is shared, its speed can change by a third within a minute. The transfer of the model's weights is timed
too, sleep and wake excluded. With ``--own-process`` the engine runs beside this process instead of in it. ``--random``
first makes a random-weight model of the Qwen2 1.5B shape in the folder. With ``--bare`` an unmodified vLLM engine runs
``plain`` only: what the mixing embedding itself costs.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from operator import truediv
from pathlib import Path
from typing import Any

import torch
from rich import get_console
from rich.table import Table

from ngrpo.entrypoints.arguments import whole
from ngrpo.entrypoints.error_handling import run_main

SHAPES = {
    "1.5b": {"vocab_size": 151936, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
             "num_attention_heads": 12, "num_key_value_heads": 2},
    "135m": {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
             "num_attention_heads": 9, "num_key_value_heads": 3},
    "tiny": {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
             "num_attention_heads": 2, "num_key_value_heads": 1},
}  # fmt: skip
"""Of the random-weight models: Qwen2 1.5B, SmolLM2-135M and a tiny one."""


def main() -> None:
    """Measures and reports."""
    arguments = parse()
    if arguments.random:
        make_random_model(Path(arguments.model), arguments.random)
    modes, describe = bare_modes(arguments) if arguments.bare else engine_modes(arguments)
    modes = {name: run for name, run in modes.items() if name in (arguments.modes or modes)}
    speeds = alternate(modes, arguments.rounds, arguments.requests * arguments.tokens)
    report(arguments, speeds, describe())


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--random", choices=list(SHAPES))
    parser.add_argument("--requests", type=whole(1), default=256)
    parser.add_argument("--prompt", type=whole(1), default=256)
    parser.add_argument("--tokens", type=whole(1), default=1024)
    parser.add_argument("--rounds", type=whole(1), default=5)
    parser.add_argument("--tensor-parallel", type=whole(1), default=1)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--own-process", action="store_true")
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--modes", nargs="+", help="only these")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def alternate(modes: dict[str, Callable[[], None]], rounds: int, tokens: int) -> dict[str, list[float]]:
    """Runs every mode once to warm up, then ``rounds`` times in turn; returns tokens/s."""
    speeds: dict[str, list[float]] = {name: [] for name in modes}
    for number in range(rounds + 1):
        for name, run in modes.items():
            start = time.perf_counter()
            run()
            if number:
                speeds[name].append(tokens / (time.perf_counter() - start))
    return speeds


def prompts_of(arguments: argparse.Namespace, vocabulary: int) -> list[tuple[int, ...]]:
    """Returns random prompts, all different, so that no prefix is shared."""
    draw = random.Random(0)
    return [
        tuple(draw.randrange(10, vocabulary - 10) for _ in range(arguments.prompt)) for _ in range(arguments.requests)
    ]


def sampling_params(arguments: argparse.Namespace, logprobs: int | None) -> Any:
    """Returns vLLM's parameters for a fixed length."""
    from vllm import SamplingParams

    return SamplingParams(
        temperature=1.0, max_tokens=arguments.tokens, ignore_eos=True, detokenize=False, logprobs=logprobs
    )


def plain(llm: Any, prompts: list[tuple[int, ...]], params: Any) -> Callable[[], None]:
    """Returns a run of vLLM itself."""

    def run() -> None:
        llm.reset_prefix_cache()
        llm.generate([{"prompt_token_ids": list(ids)} for ids in prompts], params, use_tqdm=False)

    return run


def bare_modes(arguments: argparse.Namespace) -> tuple[dict[str, Callable[[], None]], Callable[[], dict[str, Any]]]:
    """Returns the modes of an unmodified engine."""
    import os

    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(arguments.own_process))
    from vllm import LLM

    llm = LLM(
        model=arguments.model,
        max_model_len=arguments.prompt + arguments.tokens,
        max_num_seqs=arguments.requests,
        gpu_memory_utilization=0.5,
        skip_tokenizer_init=True,
        enforce_eager=arguments.eager,
        seed=0,
        generation_config="vllm",
    )
    prompts = prompts_of(arguments, llm.llm_engine.model_config.get_vocab_size())
    modes = {
        "bare plain": plain(llm, prompts, sampling_params(arguments, None)),
        "bare logprobs=0": plain(llm, prompts, sampling_params(arguments, 0)),
    }
    return modes, dict


def engine_modes(arguments: argparse.Namespace) -> tuple[dict[str, Callable[[], None]], Callable[[], dict[str, Any]]]:
    """Returns the modes of our engine, and what else is worth reporting."""
    from ngrpo.exploration.neighbor import NeighborMixing
    from ngrpo.exploration.neighbor_table import build_neighbor_table
    from ngrpo.exploration.random import request_key
    from ngrpo.exploration.runtime.bound import BoundExploration
    from ngrpo.exploration.token import TokenSampling
    from ngrpo.modeling.loading import ModelSource
    from ngrpo.rollout.vllm.engine import VllmEngine
    from ngrpo.types.rollouts import Request, Sampling

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    source = ModelSource(arguments.model, dtype="bfloat16" if device.type == "cuda" else "float32")
    mixing = NeighborMixing(rate=0.1, k=3)
    engine = VllmEngine(
        source,
        mixing,
        arguments.prompt,
        arguments.tokens,
        max_batch_size=arguments.requests,
        enforce_eager=arguments.eager,
        tensor_parallel_size=arguments.tensor_parallel,
        own_process=arguments.own_process,
    )
    engine.start(device)
    table = engine.embedding().to(device)
    nothing_excluded = torch.zeros(len(table), dtype=torch.bool, device=device)
    start = time.perf_counter()
    neighbors = build_neighbor_table(table, mixing.k, mixing.metric, nothing_excluded).cpu()
    seconds = time.perf_counter() - start
    prompts = prompts_of(arguments, len(table))
    requests = [Request(ids, request_key(0, number)) for number, ids in enumerate(prompts)]
    sampling = Sampling(1.0, arguments.tokens, stop_ids=())
    made: dict[str, Any] = {}

    def ours(name: str, bound: BoundExploration) -> Callable[[], None]:
        def run() -> None:
            engine.llm.reset_prefix_cache()
            made[name] = engine.generate(requests, sampling, bound)

        return run

    modes = {
        "plain": plain(engine.llm, prompts, sampling_params(arguments, None)),
        "logprobs=0": plain(engine.llm, prompts, sampling_params(arguments, 0)),
        "token": ours("token", BoundExploration(TokenSampling(), {}, ())),
        "neighbor": ours("neighbor", BoundExploration(mixing, {"neighbors": neighbors}, ())),
    }

    def describe() -> dict[str, Any]:
        mixed = sum(len(rollout.mixture.positions) for rollout in made.get("neighbor", ()))
        fraction = mixed / (arguments.requests * arguments.tokens)
        more = {"rows": len(table), "width": table.shape[1], "mixed_fraction": fraction}
        return {"neighbor_table_s": seconds, "hand_over_s": hand_over_seconds(engine, source, device), **more}

    return modes, describe


def hand_over_seconds(engine: Any, source: Any, device: torch.device) -> float:
    """Returns the median of three transfers of a model's weights, checksums included."""
    weights = list(source.load().to(device).named_parameters())
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        engine.sync_weights(weights)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def make_random_model(folder: Path, size: str) -> None:
    """Saves a Qwen2 of random weights; "1.5b" has an untied head of its own: 1.78 B parameters."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(max_position_embeddings=16384, tie_word_embeddings=False, eos_token_id=2, **SHAPES[size])
    torch.manual_seed(0)
    on_gpu = torch.cuda.is_available()
    with torch.device("cuda" if on_gpu else "cpu"):
        model = Qwen2ForCausalLM(config).to(torch.bfloat16 if on_gpu else torch.float32)
    model.save_pretrained(folder)
    del model
    if on_gpu:
        torch.cuda.empty_cache()


def report(arguments: argparse.Namespace, speeds: dict[str, list[float]], more: dict[str, Any]) -> None:
    """Prints the table and writes the JSON."""
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    bases = [name for name in speeds if name.split()[-1] in ("plain", "token")]
    ratios = {
        base: {name: statistics.median(map(truediv, speeds[name], speeds[base])) for name in speeds} for base in bases
    }
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    title = f"{card}: {arguments.requests} requests x {arguments.tokens} tokens, prompt {arguments.prompt}"
    table = Table("mode", "median tokens/s", *(f"of {base}" for base in bases), "rounds", title=title)
    for name, median in medians.items():
        rounds = " ".join(f"{value:.0f}" for value in speeds[name])
        table.add_row(name, f"{median:.0f}", *(f"{ratios[base][name]:.3f}" for base in bases), rounds)
    get_console().print(table)
    get_console().print(more)
    if arguments.json:
        result = {
            "card": card,
            "date": time.strftime("%Y-%m-%d"),
            "medians": medians,
            "ratios": ratios,
            "rounds": speeds,
            **more,
        }
        result |= {
            name: getattr(arguments, name)
            for name in ("requests", "tokens", "prompt", "tensor_parallel", "own_process")
        }
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    run_main(main)
