"""A whole training iteration, generation to weight transfer: beside TRL's on one card, and on several cards.

    python scripts/bench_step.py --work /tmp/bench_step --json step.json
    python scripts/bench_step.py --work /tmp/bench_step --devices 1 2 4 8 --modes cards --json cards.json
    python scripts/bench_step.py --work /tmp/bench_step --devices 2 --modes recipe --experiment n_grpo_1_5b

Random weights of the Qwen2 1.5B shape (1.78 B parameters), 16 prompts x 8 completions of 1024 tokens, KL on, one
optimiser step. ``ours`` is ``scripts/train.py exploration=neighbor algo=grpo rollout=vllm`` with the settings below:
float32 weights and moments, the moments in host memory during generation. ``ours bf16`` keeps all of them in bfloat16
on the card, as TRL does here; ``trl`` is TRL's trainer with vLLM in its process, ``trl liger`` the same with its Liger
loss, ``ours in trl`` the same with exploration by our vLLM engine (`ExploringGRPOTrainer`).

With ``--devices``: ``cards`` has a training process and an engine process a card, ``cards plain`` gathers
weights for every microbatch, ``cards ahead`` makes the next rollouts beside the update, ``cards tensor`` splits the
trainer's layers over the cards, with an engine on the first of them, and ``tensor engine`` the engine's, beside one
training process. ``weak`` scaling has ``--prompts`` a card, ``strong`` in
all. ``recipe`` makes iterations of ``--experiment`` with its own batch, lengths and steps, on random weights of its
model's shape.

Each runs in a process of its own, one after the other; the first iterations are warm-ups, medians of the rest are
given. ``used_gib`` is the most memory that was in use on the fullest card, whoever used it, outside the weight
transfer, ``transfer_gib`` inside. A mode whose packages are missing is skipped. ``--shape tiny --engine torch --modes
ours`` tries our side on a CPU.

On one card another iteration is made, whose kernels are recorded: ``kernel_s`` is how long at least one of them ran, so
that a slow host is seen as such, and ``generate_kernel_s`` the same of generation. ``optimizer_s`` is the optimiser's
own step. With ``--both-orders`` the modes are run again from the last to the first; with ``--burst`` ours are run with
each of these numbers of decode steps a scheduler round.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from ngrpo.entrypoints.arguments import whole
from ngrpo.entrypoints.error_handling import run_main

ROOT = Path(__file__).parents[1]
GROUP = 8
UNUSED = (
    "evaluation",
    "rollout_report",
    "pass_at_k_figure",
    "run_record",
    "progress",
    "export",
    "summary",
    "checkpoint",
    "model_check",
    "engine_check",
)
"""Callbacks that are no part of an iteration."""
EXPERIMENTS = {"n_grpo_1_5b": "1.5b", "n_grpo_7b": "7b"}
"""Recipes, and the shapes of their models."""


def prompts(words: int) -> list[str]:
    """Returns the prompts of so many numbers, all different."""
    draw = random.Random(0)
    return [" ".join(str(draw.randrange(100, 1000)) for _ in range(words)) for _ in range(512)]


def model_folder(arguments: argparse.Namespace) -> Path:
    """Returns where the random model lies."""
    folder: Path = arguments.work / f"model-{arguments.shape}"
    return folder


def make_work(arguments: argparse.Namespace) -> None:
    """Writes a random model with the demo's small tokenizer, unless it is there, and the prompts."""
    rows = [{"problem": text, "answer": "1"} for text in prompts(arguments.prompt_words)]
    arguments.work.mkdir(parents=True, exist_ok=True)
    (arguments.work / "prompts.json").write_text(json.dumps(rows))
    folder = model_folder(arguments)
    if not (folder / "config.json").exists():
        make_model(arguments.shape, folder)


def make_model(shape_name: str, folder: Path) -> None:
    """Writes random weights in bfloat16, made on a GPU if there is one, and the demo's tokenizer."""
    from bench_update import SHAPES
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    from ngrpo.modeling.loading import MODEL_PATH

    tokenizer = AutoTokenizer.from_pretrained(MODEL_PATH)
    tokenizer.save_pretrained(folder)
    shape = dict(SHAPES[shape_name])
    shape["vocab_size"] = max(shape["vocab_size"], len(tokenizer))
    config = Qwen2Config(
        max_position_embeddings=16384, tie_word_embeddings=False, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id, bos_token_id=None, **shape,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        Qwen2ForCausalLM._from_config(config, dtype=torch.bfloat16).save_pretrained(folder)


FLOAT32 = ("trainer.offload_optimizer=true",)
BFLOAT16 = ("model.dtype=bfloat16", "trainer.precision=32-true")
"""What `run_ours` keeps weights and moments in; "32-true" computes in the dtype of the weights."""


def method(arguments: argparse.Namespace, prompts_per_batch: int) -> list[str]:
    """Returns the settings of the method, the batch and the lengths."""
    return [
        "exploration=neighbor", "algo=grpo", "algo.kl_coef=0.001", "algo.optimizer_steps=1",
        f"algo.prompts_per_batch={prompts_per_batch}", f"rollout.group_size={GROUP}",
        f"rollout.max_new_tokens={arguments.tokens}", "rollout.temperature=1.0",
        f"data.max_prompt_tokens={arguments.prompt_tokens}",
        f"trainer.microbatch_tokens={arguments.microbatch_tokens}", f"model.checkpointing={arguments.checkpointing}",
        f"model.compile={str(arguments.compile).lower()}",
    ]  # fmt: skip


def engine(arguments: argparse.Namespace) -> list[str]:
    """Returns the settings of the engine."""
    if arguments.engine == "torch":
        return []
    return ["rollout=vllm", f"rollout.engine.gpu_memory_utilization={arguments.engine_memory}"]


OWN_PROCESS = "rollout.engine.own_process=true"
"""The engine runs beside this process, which cannot record its kernels."""


def record_after(arguments: argparse.Namespace, settings: Sequence[str] = ()) -> int | None:
    """Returns the number of iterations before the one whose kernels are recorded, None for none."""
    records = arguments.kernels and OWN_PROCESS not in settings and torch.cuda.is_available()
    return arguments.warm_up + arguments.steps if records else None


def run_ours(arguments: argparse.Namespace, result: Path, settings: Sequence[str], devices: int = 1) -> None:
    """Runs our training; the other processes are started by this one, with the same command line."""
    recorded = record_after(arguments, settings) if devices == 1 else None
    overrides = [
        *settings, f"model.path={model_folder(arguments)}",
        f"data.path={arguments.work / 'prompts.json'}", "data.instruction=''", "data.eval_path=null",
        "trainer=gpu" if torch.cuda.is_available() else "trainer=cpu", f"trainer.devices={devices}",
        f"trainer.iterations={arguments.warm_up + arguments.steps + (recorded is not None)}",
        "reward._target_=step_times.AlternateReward", "allow_targets=[step_times]",
        "~reward.timeout_s", "~reward.workers", "~reward.reasoning_end", "~reward.correct", "~reward.wrong",
        "~reward.require_evaluated",
        *(f"callbacks.{name}=null" for name in UNUSED),
        "+callbacks.times._target_=step_times.StepTimes", f"+callbacks.times.path={result}",
        f"+callbacks.times.warm_up={arguments.warm_up}",
        f"+callbacks.times.record_after={'null' if recorded is None else recorded}", *arguments.overrides,
    ]  # fmt: skip
    from hydra import compose, initialize_config_dir

    from ngrpo.config.schema import register
    from ngrpo.entrypoints.train import train

    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        config = compose("train", overrides)
    train(config, arguments.work / f"run-{result.stem}", {})


def run_one(arguments: argparse.Namespace, result: Path, kept: Sequence[str]) -> None:
    """Runs our training on one card, vLLM in its process."""
    stored = kept if torch.cuda.is_available() else ()
    run_ours(arguments, result, [*method(arguments, arguments.prompts), *engine(arguments), *stored])


def run_trl(arguments: argparse.Namespace, result: Path, liger: bool = False, exploring: bool = False) -> None:
    """Runs TRL's trainer."""
    from step_trl import run_trl as run

    texts = prompts(arguments.prompt_words)
    run(arguments, model_folder(arguments), texts, GROUP, result, record_after(arguments), liger, exploring)


def with_burst(
    run: Callable[[argparse.Namespace, Path], None], steps: int, arguments: argparse.Namespace, result: Path
) -> None:
    """Runs a case of ours with so many decode steps a scheduler round."""
    overrides = [*arguments.overrides, f"rollout.engine.burst={steps}"]
    run(argparse.Namespace(**vars(arguments) | {"overrides": overrides}), result)


def run_cards(arguments: argparse.Namespace, result: Path, more: Sequence[str], devices: int, weak: bool) -> None:
    """Runs our training with a process a card, and an engine process a card."""
    settings = method(arguments, arguments.prompts * (devices if weak else 1)) + engine(arguments)
    if arguments.engine == "vllm":
        settings.append(OWN_PROCESS)
    run_ours(arguments, result, [*settings, *FLOAT32, *(m.format(devices=devices) for m in more)], devices)


def run_tensor_engine(arguments: argparse.Namespace, result: Path, devices: int, weak: bool) -> None:
    """Runs our training in one process, with an engine that splits the layers over the cards."""
    settings = method(arguments, arguments.prompts * (devices if weak else 1)) + engine(arguments)
    run_ours(arguments, result, [*settings, *FLOAT32, f"rollout.engine.tensor_parallel_size={devices}"])


def run_recipe(arguments: argparse.Namespace, result: Path, devices: int) -> None:
    """Runs iterations of a recipe."""
    settings = [f"experiment={arguments.experiment}", *engine(arguments)]
    if arguments.engine == "vllm" and devices > 1:
        settings.append(OWN_PROCESS)
    run_ours(arguments, result, settings, devices)


@dataclass(frozen=True)
class Case:
    """What is measured in a process of its own.

    Attributes:
        name: of the row, and of the file of results.
        run: takes the command line and the file to write.
        packages: that it needs.
        cards: how many it runs on.
        ours: whether our engine makes its rollouts.
    """

    name: str
    run: Callable[[argparse.Namespace, Path], None]
    packages: tuple[str, ...] = ()
    cards: int = 1
    ours: bool = True

    def bursts(self, lengths: Sequence[int]) -> "list[Case]":
        """Returns the same with each length of bursts, itself where there is none to choose."""
        if not (self.ours and lengths):
            return [self]
        return [replace(self, name=f"{self.name} burst {n}", run=partial(with_burst, self.run, n)) for n in lengths]


ALONE = (
    Case("ours", partial(run_one, kept=FLOAT32)),
    Case("ours bf16", partial(run_one, kept=BFLOAT16)),
    Case("ours in trl", partial(run_trl, exploring=True), ("trl",), ours=False),
    Case("trl", run_trl, ("trl", "vllm"), ours=False),
    Case("trl liger", partial(run_trl, liger=True), ("trl", "vllm", "liger_kernel"), ours=False),
)
"""On one card."""
AHEAD = ("rollout.ahead=1", "algo/correction=truncate")
TENSOR = ("trainer.tensor_parallel_size={devices}", "model.compile=false")
CARDS: dict[str, Callable[..., None]] = {
    "cards": partial(run_cards, more=()),
    "cards plain": partial(run_cards, more=("trainer.gather_once=false",)),
    "cards ahead": partial(run_cards, more=AHEAD),
    "cards tensor": partial(run_cards, more=TENSOR),
    "tensor engine": run_tensor_engine,
}
"""On any number of cards."""
AGAIN = " again"
"""Ends the names of the cases of the second order."""
MODES = [*(case.name for case in ALONE), *CARDS, "recipe"]


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Returns what is asked for, in order; on one card weak and strong scaling are the same work."""
    found = [case for case in ALONE if case.name in arguments.modes]
    for mode, run in CARDS.items():
        for devices in arguments.devices if mode in arguments.modes else ():
            for scaling in arguments.scaling if devices > 1 else arguments.scaling[:1]:
                name = f"{mode} {devices}" + f" {scaling}" * (devices > 1)
                found.append(Case(name, partial(run, devices=devices, weak=scaling == "weak"), cards=devices))
    if "recipe" in arguments.modes:
        for devices in arguments.devices:
            name = f"{arguments.experiment} {devices}"
            found.append(Case(name, partial(run_recipe, devices=devices), cards=devices))
    found = [one for case in found for one in case.bursts(arguments.burst)]
    if arguments.both_orders:
        found += [replace(case, name=f"{case.name}{AGAIN}") for case in reversed(found)]
    return found


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for model, prompts and runs")
    parser.add_argument("--shape", choices=["1.5b", "7b", "tiny"], help="1.5b, or what the recipe's model has")
    parser.add_argument("--engine", choices=["vllm", "torch"], default="vllm", help="of our side")
    parser.add_argument("--engine-memory", type=float, default=0.35, help="gpu_memory_utilization of vLLM")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=[case.name for case in ALONE])
    parser.add_argument("--devices", nargs="+", type=whole(1), default=[1], help="of the modes for several cards")
    parser.add_argument("--scaling", nargs="+", choices=["weak", "strong"], default=["weak", "strong"])
    parser.add_argument("--experiment", choices=EXPERIMENTS, default="n_grpo_1_5b", help="of recipe")
    parser.add_argument("--prompts", type=whole(1), default=16, help=f"of {GROUP} completions each")
    parser.add_argument("--tokens", type=whole(1), default=1024, help="of each completion")
    parser.add_argument("--prompt-words", type=whole(1), default=40, help="numbers of three digits in each prompt")
    parser.add_argument("--prompt-tokens", type=whole(1), default=512, help="most tokens of a prompt")
    parser.add_argument("--steps", type=whole(1), default=5)
    parser.add_argument("--warm-up", type=whole(0), default=2)
    parser.add_argument("--microbatch-tokens", type=whole(1), default=5120)
    parser.add_argument("--checkpointing", default="off")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--burst", nargs="+", type=whole(1), default=[], help="decode steps a scheduler round of ours")
    parser.add_argument("--both-orders", action="store_true", help="run everything again, the last first")
    parser.add_argument(
        "--kernels", action=argparse.BooleanOptionalAction, default=True, help="record those of one more iteration"
    )
    parser.add_argument("--overrides", nargs="*", default=[], help="further settings of our side")
    parser.add_argument("--json", type=Path, help="of the results; the table lies beside it, as Markdown")
    parser.add_argument("--earlier", type=Path, help="JSON of an earlier call, whose rows come first")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.work = arguments.work.resolve()
    if arguments.shape is None:
        arguments.shape = EXPERIMENTS[arguments.experiment] if "recipe" in arguments.modes else "1.5b"
    return arguments


def main() -> None:
    """Runs one case in this process, or all of them in processes of their own."""
    arguments = parse()
    asked = cases(arguments)
    for case in asked:
        if case.name == arguments.only:
            case.run(arguments, result_of(arguments, case))
            return
    make_work(arguments)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    results = json.loads(arguments.earlier.read_text())["results"] if arguments.earlier else {}
    for case in asked:
        missing = [package for package in case.packages if find_spec(package) is None]
        if missing:
            print(f"{case.name} is skipped: {', '.join(missing)} not installed")
            continue
        path = result_of(arguments, case)
        path.unlink(missing_ok=True)
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--only", case.name], check=False)
        if path.exists():
            results[case.name] = json.loads(path.read_text()) | {"cards": case.cards}
            report(arguments, results)


def result_of(arguments: argparse.Namespace, case: Case) -> Path:
    """Returns the file that a case writes."""
    path: Path = arguments.work / f"{case.name.replace(' ', '_')}.json"
    return path


COLUMNS = (
    "step_s",
    "generate_s",
    "wait_s",
    "score_s",
    "update_s",
    "optimizer_s",
    "sync_s",
    "kernel_s",
    "generate_kernel_s",
    "tokens_per_s",
    "used_gib",
    "transfer_gib",
)


def report(arguments: argparse.Namespace, results: dict[str, dict[str, Any]]) -> None:
    """Prints the table so far and writes it, with the JSON."""
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    for result in results.values():
        if "tokens" in result:
            result["tokens_per_s"] = result["tokens"] / result["step_s"]
    add_speed_ups(results)
    columns = [name for name in (*COLUMNS, "speed_up", "efficiency") if any(name in r for r in results.values())]
    rows = [[name, *(f"{r[c]:,.2f}" if c in r else "" for c in columns)] for name, r in results.items()]
    title = f"{card}: completions of {arguments.tokens} tokens" if arguments.modes != ["recipe"] else card
    table = Table("mode", *columns, title=title)
    for row in rows:
        table.add_row(*row)
    console = Console(width=160)
    console.print(table)
    ratios = speed_ups(results)
    for mode, ratio in ratios.items():
        console.print(f"{mode} is {ratio:.2f} times as fast as the faster of TRL's")
    if arguments.json:
        made = {"card": card, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"), "speed_up": ratios}
        settings = {name: str(value) for name, value in vars(arguments).items()}
        arguments.json.write_text(json.dumps({**made, "settings": settings, "results": results}, indent=2) + "\n")
        lines = [["mode", *columns], ["---"] * (len(columns) + 1), *rows]
        text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        arguments.json.with_suffix(".md").write_text(f"{title}, {made['date']}\n\n{text}\n")


def speed_ups(results: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Returns how many times as fast as the faster of TRL's each of ours is, within the same order."""
    found = {}
    for second in (False, True):
        seconds = {mode: result["step_s"] for mode, result in results.items() if mode.endswith(AGAIN) == second}
        others = [spent for mode, spent in seconds.items() if mode.startswith("trl")]
        found |= {mode: min(others) / spent for mode, spent in seconds.items() if mode.startswith("ours") and others}
    return found


def add_speed_ups(results: dict[str, dict[str, Any]]) -> None:
    """Adds how many times as many tokens a second several cards make as one, over the number of cards too."""
    alone = results.get("cards 1")
    for result in results.values():
        if alone is not None and result["cards"] > 1:
            result["speed_up"] = result["tokens_per_s"] / alone["tokens_per_s"]
            result["efficiency"] = result["speed_up"] / result["cards"]


if __name__ == "__main__":
    run_main(main)
