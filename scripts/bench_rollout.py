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

    python scripts/bench_rollout.py --model FOLDER --rows 8 16 32 128 256 [--burst 1 32] --json decode.json

With ``--rows`` the time of a decode step is measured instead, of so many requests at once whose prompts are cached and
whose contexts are ``--prompt`` + ``--tokens`` / 2 long on average: wall time, and beside it the time in which a kernel
ran, so that a slow host is seen as such. ``--burst`` lists numbers of decode steps a scheduler round, measured one
after the other in one engine: ``--burst 1 32 1`` shows how far the host drifts in between. ``plain`` is vLLM's own
loop, which knows no bursts.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from inspect import signature
from operator import truediv
from pathlib import Path
from typing import Any

import torch
from decode_steps import DecodeStep, Generate, measured_steps, step_markdown, step_table
from kernel_times import busy_seconds, recorded_kernels
from model_shapes import QWEN2
from rich import get_console
from rich.console import Console
from rich.table import Table

from ngrpo.entrypoints.arguments import whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.neighbor_table import build_neighbor_table
from ngrpo.exploration.random import request_key
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.vllm.engine import VllmEngine
from ngrpo.rollout.vllm.private import scheduler_in_process
from ngrpo.rollout.vllm.versions import installed_version
from ngrpo.types.rollouts import Request, Sampling

SHAPES = {
    **QWEN2,
    "135m": {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
             "num_attention_heads": 9, "num_key_value_heads": 3},
    "6m": {"vocab_size": 2048, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6,
           "num_attention_heads": 8, "num_key_value_heads": 4},
    "tiny": {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
             "num_attention_heads": 2, "num_key_value_heads": 1},
}  # fmt: skip
"""Of the random-weight models: Qwen2 7B and 1.5B, SmolLM2-135M, one that a CPU runs fast, and a tiny one."""


def main() -> None:
    """Measures and reports."""
    arguments = parse()
    if arguments.random:
        make_random_model(Path(arguments.model), arguments.random)
    if arguments.rows:
        measure_steps(arguments)
        return
    modes, describe = bare_modes(arguments) if arguments.bare else engine_modes(arguments)
    modes = {name: run for name, run in modes.items() if name in (arguments.modes or modes)}
    speeds = alternate(modes, arguments.rounds, arguments.requests * arguments.tokens)
    report(arguments, speeds, {} if arguments.own_process else kernel_seconds(modes), describe())


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
    parser.add_argument("--rows", nargs="+", type=whole(1), help="time a decode step of so many requests at once")
    parser.add_argument("--burst", nargs="+", type=whole(1), help="decode steps a scheduler round, with --rows")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.rows:
        arguments.requests = max(arguments.rows)
    if arguments.rows and (arguments.own_process or arguments.bare or arguments.tensor_parallel > 1):
        parser.error("--rows needs the engine in this process, where its kernels can be recorded")
    if arguments.burst and not arguments.rows:
        parser.error("--burst needs --rows")
    if arguments.burst and "burst" not in signature(VllmEngine).parameters:
        parser.error("--burst needs an engine that makes bursts, which this version's does not; leave it out")
    return arguments


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


def kernel_seconds(modes: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Runs every mode once more; returns for how long a kernel ran, of no mode without a GPU."""
    busy = {}
    for name, run in modes.items():
        with recorded_kernels() as kernels:
            run()
        if kernels:
            busy[name] = busy_seconds(kernels)
    return busy


def prompts_of(arguments: argparse.Namespace, vocabulary: int) -> list[tuple[int, ...]]:
    """Returns random prompts, all different, so that no prefix is shared."""
    draw = random.Random(0)
    return [
        tuple(draw.randrange(10, vocabulary - 10) for _ in range(arguments.prompt)) for _ in range(arguments.requests)
    ]


def sampling_params(tokens: int, logprobs: int | None) -> Any:
    """Returns vLLM's parameters for a fixed length."""
    from vllm import SamplingParams

    return SamplingParams(temperature=1.0, max_tokens=tokens, ignore_eos=True, detokenize=False, logprobs=logprobs)


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
        "bare plain": plain(llm, prompts, sampling_params(arguments.tokens, None)),
        "bare logprobs=0": plain(llm, prompts, sampling_params(arguments.tokens, 0)),
    }
    return modes, dict


@dataclass(frozen=True)
class Started:
    """Our engine, and what it is asked to do.

    Attributes:
        engine: it runs.
        source: of its weights.
        device: that it runs on.
        strategies: those to measure, by name, bound to the served table.
        neighbor_table_s: seconds in which the table of neighbours was built.
        table: rows and width of the embedding.
    """

    engine: VllmEngine
    source: ModelSource
    device: torch.device
    strategies: dict[str, BoundExploration]
    neighbor_table_s: float
    table: tuple[int, int]


def start_engine(arguments: argparse.Namespace, most_tokens: int, burst: int | None = None) -> Started:
    """Starts our engine for responses of up to so many tokens; ``burst`` of None leaves its length to the engine."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    source = ModelSource(arguments.model, dtype="bfloat16" if device.type == "cuda" else "float32")
    mixing = NeighborMixing(rate=0.1, k=3)
    more: dict[str, Any] = {} if burst is None else {"burst": burst}
    engine = VllmEngine(
        source,
        mixing,
        arguments.prompt,
        most_tokens,
        max_batch_size=arguments.requests,
        enforce_eager=arguments.eager,
        tensor_parallel_size=arguments.tensor_parallel,
        own_process=arguments.own_process,
        **more,
    )
    engine.start(device)
    table = engine.embedding().to(device)
    nothing_excluded = torch.zeros(len(table), dtype=torch.bool, device=device)
    start = time.perf_counter()
    neighbors = build_neighbor_table(table, mixing.k, mixing.metric, nothing_excluded).cpu()
    seconds = time.perf_counter() - start
    strategies = {
        "token": BoundExploration(TokenSampling(), {}, ()),
        "neighbor": BoundExploration(mixing, {"neighbors": neighbors}, ()),
    }
    return Started(engine, source, device, strategies, seconds, (len(table), table.shape[1]))


def made_requests(prompts: list[tuple[int, ...]]) -> list[Request]:
    """Returns a request a prompt."""
    return [Request(ids, request_key(0, number)) for number, ids in enumerate(prompts)]


def engine_modes(arguments: argparse.Namespace) -> tuple[dict[str, Callable[[], None]], Callable[[], dict[str, Any]]]:
    """Returns the modes of our engine, and what else is worth reporting."""
    started = start_engine(arguments, arguments.tokens)
    engine = started.engine
    prompts = prompts_of(arguments, started.table[0])
    requests = made_requests(prompts)
    sampling = Sampling(1.0, arguments.tokens, stop_ids=())
    made: dict[str, Any] = {}

    def ours(name: str, bound: BoundExploration) -> Callable[[], None]:
        def run() -> None:
            engine.llm.reset_prefix_cache()
            made[name] = engine.generate(requests, sampling, bound)

        return run

    modes = {
        "plain": plain(engine.llm, prompts, sampling_params(arguments.tokens, None)),
        "logprobs=0": plain(engine.llm, prompts, sampling_params(arguments.tokens, 0)),
        **{name: ours(name, bound) for name, bound in started.strategies.items()},
    }

    def describe() -> dict[str, Any]:
        mixed = sum(len(rollout.mixture.positions) for rollout in made.get("neighbor", ()))
        fraction = mixed / (arguments.requests * arguments.tokens)
        more = {"rows": started.table[0], "width": started.table[1], "mixed_fraction": fraction}
        hand_over = hand_over_seconds(engine, started.source, started.device)
        return {"neighbor_table_s": started.neighbor_table_s, "hand_over_s": hand_over, **more}

    return modes, describe


def measure_steps(arguments: argparse.Namespace) -> None:
    """Measures decode steps in one engine; reports after each number of rows and length of bursts."""
    made: list[DecodeStep] = []
    most = max(arguments.burst) if arguments.burst else None
    started = start_engine(arguments, arguments.tokens + 1, most)
    modes = step_modes(arguments, started)
    for rows in arguments.rows:
        for burst in arguments.burst or [None]:
            if burst is not None:
                scheduler_in_process(started.engine.llm).limit_bursts(burst)
            for steps in measured_steps(modes, [rows], burst, arguments.tokens, arguments.rounds):
                made += steps
                report_steps(arguments, made)
    started.engine.close()


def step_modes(arguments: argparse.Namespace, started: Started) -> dict[str, Generate]:
    """Returns the modes whose steps are measured."""
    llm = started.engine.llm
    prompts = prompts_of(arguments, started.table[0])
    requests = made_requests(prompts)

    def ours(bound: BoundExploration) -> Generate:
        return lambda rows, tokens: started.engine.generate(requests[:rows], Sampling(1.0, tokens, stop_ids=()), bound)

    def vllm_alone(rows: int, tokens: int) -> None:
        given = [{"prompt_token_ids": list(ids)} for ids in prompts[:rows]]
        llm.generate(given, sampling_params(tokens, None), use_tqdm=False)

    modes = {"plain": vllm_alone, **{name: ours(bound) for name, bound in started.strategies.items()}}
    return {name: run for name, run in modes.items() if name in (arguments.modes or modes)}


def report_steps(arguments: argparse.Namespace, made: list[DecodeStep]) -> None:
    """Prints the table so far and writes the JSON."""
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    context = arguments.prompt + arguments.tokens // 2
    Console(width=120).print(step_table(made, f"{card}: a decode step, mean context {context}"))
    if arguments.json:
        result = {"card": card, "date": time.strftime("%Y-%m-%d"), "torch": torch.__version__}
        result |= {"vllm": installed_version(), "context": context, "steps": [asdict(step) for step in made]}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
        arguments.json.with_suffix(".md").write_text(step_markdown(made))


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
    """Saves a Qwen2 of random weights, with a head of its own: "1.5b" has 1.78 B parameters."""
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


def report(
    arguments: argparse.Namespace, speeds: dict[str, list[float]], busy: dict[str, float], more: dict[str, Any]
) -> None:
    """Prints the table and writes the JSON."""
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    bases = [name for name in speeds if name.split()[-1] in ("plain", "token")]
    ratios = {
        base: {name: statistics.median(map(truediv, speeds[name], speeds[base])) for name in speeds} for base in bases
    }
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    title = f"{card}: {arguments.requests} requests x {arguments.tokens} tokens, prompt {arguments.prompt}"
    columns = ("wall, s", "kernels, s", *(f"of {base}" for base in bases), "rounds")
    table = Table("mode", "median tokens/s", *columns, title=title)
    for name, median in medians.items():
        rounds = " ".join(f"{value:.0f}" for value in speeds[name])
        wall = arguments.requests * arguments.tokens / median
        times = f"{wall:.2f}", f"{busy[name]:.2f}" if name in busy else ""
        table.add_row(name, f"{median:.0f}", *times, *(f"{ratios[base][name]:.3f}" for base in bases), rounds)
    get_console().print(table)
    get_console().print(more)
    if arguments.json:
        result = {
            "card": card,
            "date": time.strftime("%Y-%m-%d"),
            "medians": medians,
            "ratios": ratios,
            "rounds": speeds,
            "kernels_s": busy,
            **more,
        }
        result |= {
            name: getattr(arguments, name)
            for name in ("requests", "tokens", "prompt", "tensor_parallel", "own_process")
        }
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    run_main(main)
