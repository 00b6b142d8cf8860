"""A whole training iteration, generation to weight transfer, beside TRL's GRPOTrainer on the same work.

    python scripts/bench_step.py --work /tmp/bench_step --json step.json

Random weights of the Qwen2 1.5B shape (1.78 B parameters), 16 prompts x 8 completions of 1024 tokens, KL on, one
optimiser step. ``ours`` is ``scripts/train.py exploration=neighbor algo=grpo rollout=vllm`` with the settings below:
float32 weights and moments, the moments in host memory during generation. ``ours bf16`` keeps all of them in bfloat16
on the card, as TRL does here; ``trl`` is TRL's trainer with vLLM in its process, ``trl liger`` the same with its Liger
loss. Each runs in a process of its own, one after the other on the same card; the first iterations are warm-ups,
medians of the rest are given. ``used_gib`` is the most memory that was in use on the card, whoever used it. A mode
whose packages are missing is skipped. ``--shape tiny --engine torch --modes ours`` tries our side on a CPU.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from rich.console import Console
from rich.table import Table

from ngrpo.entrypoints.arguments import whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.types.scores import Score, Verdict

ROOT = Path(__file__).parents[1]
PROMPTS, GROUP = 16, 8
GIB = 2**30
UNUSED = (
    "evaluation",
    "rollout_report",
    "pass_at_k_figure",
    "run_record",
    "progress",
    "export",
    "summary",
    "checkpoint",
)
"""Callbacks that are no part of an iteration."""


class AlternateReward:
    """Right and wrong in turn, so that every group has a signal."""

    def __call__(self, responses: Sequence[str], references: Sequence[str]) -> list[Score]:
        """Returns a score a response."""
        return [Score(float(n % 2), bool(n % 2), None, Verdict.CORRECT if n % 2 else Verdict.WRONG)
                for n in range(len(responses))]  # fmt: skip

    def close(self) -> None:
        """Holds nothing."""


class StepTimes(Callback):
    """Writes the seconds and phases of each iteration, and the peak of memory after the warm-ups.

    Args:
        worker: made to continue past every stop token, so that all completions are equally long.
        path: file to write.
        warm_up: iterations that are not counted.
    """

    def __init__(self, worker: RolloutWorker, path: str, warm_up: int) -> None:
        worker.sampling = replace(worker.sampling, stop_ids=())
        self.path = Path(path)
        self.warm_up = warm_up
        self.steps: list[dict[str, float]] = []
        self._last = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the clock; the engine has started."""
        reset_peak()
        self._last = now()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Notes an iteration; the last callback's."""
        moment = now()
        phases = {n.removeprefix("time/"): float(v) for n, v in trainer.callback_metrics.items() if n[:5] == "time/"}
        self.steps.append({"step_s": moment - self._last, **phases})
        if batch_idx + 1 == self.warm_up:
            reset_peak()
        write(self.path, self.steps[self.warm_up :])
        self._last = now()


def now() -> float:
    """Returns the time at which everything that was launched is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


class Used(threading.Thread):
    """Keeps the most memory in use on the card, read fifty times a second.

    PyTorch's own peak counts what a sleeping vLLM has given back.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0

    def run(self) -> None:
        """Reads on until the process ends."""
        while True:
            free, total = torch.cuda.mem_get_info()
            self.most = max(self.most, total - free)
            time.sleep(0.02)


USED = Used()


def reset_peak() -> None:
    """Forgets the peaks of the warm-ups."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        USED.most = 0
        if not USED.is_alive():
            USED.start()


def write(path: Path, steps: list[dict[str, float]]) -> None:
    """Writes the medians of the steps and the peaks: of PyTorch's allocator, vLLM's part included, and `Used`'s."""
    if not steps:
        return
    medians = {name: statistics.median(step[name] for step in steps) for name in steps[0]}
    peak = torch.cuda.max_memory_allocated() / GIB if torch.cuda.is_available() else 0.0
    path.write_text(json.dumps({**medians, "peak_gib": peak, "used_gib": USED.most / GIB, "steps": steps}))


def prompts(words: int) -> list[str]:
    """Returns the prompts of so many numbers, all different."""
    draw = random.Random(0)
    return [" ".join(str(draw.randrange(100, 1000)) for _ in range(words)) for _ in range(512)]


def make_work(arguments: argparse.Namespace) -> None:
    """Writes a random model with the demo's small tokenizer, and the prompts."""
    from bench_update import SHAPES
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    from ngrpo.modeling.loading import MODEL_PATH

    folder = arguments.work / "model"
    tokenizer = AutoTokenizer.from_pretrained(MODEL_PATH)
    tokenizer.save_pretrained(folder)
    shape = dict(SHAPES[arguments.shape])
    shape["vocab_size"] = max(shape["vocab_size"], len(tokenizer))
    config = Qwen2Config(
        max_position_embeddings=16384, tie_word_embeddings=False, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id, bos_token_id=None, **shape,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        Qwen2ForCausalLM._from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    rows = [{"problem": text, "answer": "1"} for text in prompts(arguments.prompt_words)]
    (arguments.work / "prompts.json").write_text(json.dumps(rows))


FLOAT32 = ("trainer.offload_optimizer=true",)
BFLOAT16 = ("model.dtype=bfloat16", "trainer.precision=32-true")
"""What `run_ours` keeps weights and moments in; "32-true" computes in the dtype of the weights."""


def run_ours(arguments: argparse.Namespace, result: Path, kept: Sequence[str]) -> None:
    """Runs our training."""
    on_gpu = torch.cuda.is_available()
    engine = ["rollout=vllm", "rollout.engine.gpu_memory_utilization=0.35"] if arguments.engine == "vllm" else []
    overrides = [
        "exploration=neighbor", "algo=grpo", "algo.kl_coef=0.001", "algo.optimizer_steps=1",
        f"algo.prompts_per_batch={PROMPTS}", f"rollout.group_size={GROUP}",
        f"rollout.max_new_tokens={arguments.tokens}", "rollout.temperature=1.0", *engine,
        f"model.path={arguments.work / 'model'}",
        f"data.path={arguments.work / 'prompts.json'}", "data.instruction=''", "data.eval_path=null",
        f"data.max_prompt_tokens={arguments.prompt_tokens}",
        "trainer=gpu" if on_gpu else "trainer=cpu", "trainer.devices=1",
        f"trainer.iterations={arguments.warm_up + arguments.steps}",
        f"trainer.microbatch_tokens={arguments.microbatch_tokens}", f"model.checkpointing={arguments.checkpointing}",
        f"model.compile={str(arguments.compile).lower()}", "reward._target_=bench_step.AlternateReward",
        "allow_targets=[bench_step]",
        "~reward.timeout_s", "~reward.workers", "~reward.reasoning_end", "~reward.correct", "~reward.wrong",
        "~reward.require_evaluated",
        *(f"callbacks.{name}=null" for name in UNUSED),
        "+callbacks.times._target_=bench_step.StepTimes", f"+callbacks.times.path={result}",
        f"+callbacks.times.warm_up={arguments.warm_up}", *(kept if on_gpu else ()), *arguments.overrides,
    ]  # fmt: skip
    from hydra import compose, initialize_config_dir

    from ngrpo.config.schema import register
    from ngrpo.entrypoints.train import train

    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        config = compose("train", overrides)
    train(config, arguments.work / "run", {})


def run_trl(arguments: argparse.Namespace, result: Path, liger: bool) -> None:
    """Runs TRL's trainer with vLLM in its process."""
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    folder = str(arguments.work / "model")
    rows = Dataset.from_list([{"prompt": text} for text in prompts(arguments.prompt_words)])
    micro = 8
    config = GRPOConfig(
        output_dir=str(arguments.work / "trl"), per_device_train_batch_size=micro,
        gradient_accumulation_steps=GROUP * PROMPTS // micro, num_generations=GROUP,
        max_completion_length=arguments.tokens, use_vllm=True, vllm_mode="colocate",
        vllm_gpu_memory_utilization=0.35, vllm_max_model_length=arguments.tokens + arguments.prompt_tokens,
        beta=0.001, bf16=True, gradient_checkpointing=True, learning_rate=1e-6,
        max_steps=arguments.warm_up + arguments.steps, logging_steps=1, report_to="none", save_strategy="no",
        temperature=1.0, generation_kwargs={"ignore_eos": True}, use_liger_kernel=liger,
        model_init_kwargs={"dtype": "bfloat16"},
    )  # fmt: skip

    def reward(completions: list[str], **_: Any) -> list[float]:
        return [float(number % 2) for number in range(len(completions))]

    trainer = GRPOTrainer(
        model=folder, args=config, train_dataset=rows, reward_funcs=reward,
        processing_class=AutoTokenizer.from_pretrained(folder),
    )  # fmt: skip
    spent: dict[str, list[float]] = {"generate": [], "generate_and_score": []}
    for method, name in (("_generate", "generate"), ("_generate_and_score_completions", "generate_and_score")):
        setattr(trainer, method, timed(getattr(trainer, method), spent[name]))
    steps: list[dict[str, float]] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.start = now()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            whole, generate, both = now() - self.start, spent["generate"][-1], spent["generate_and_score"][-1]
            step = {"step_s": whole, "generate_s": generate, "score_s": both - generate, "update_s": whole - both}
            steps.append(step)
            if len(steps) == arguments.warm_up:
                reset_peak()
            write(result, steps[arguments.warm_up :])

    trainer.add_callback(Clock())
    reset_peak()
    trainer.train()


def timed(function: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """Returns a function that notes how long it took."""

    def run(*args: Any, **kwargs: Any) -> Any:
        start = now()
        made = function(*args, **kwargs)
        seconds.append(now() - start)
        return made

    return run


MODES: dict[str, tuple[Callable[[argparse.Namespace, Path], None], tuple[str, ...]]] = {
    "ours": (partial(run_ours, kept=FLOAT32), ()),
    "ours bf16": (partial(run_ours, kept=BFLOAT16), ()),
    "trl": (lambda arguments, result: run_trl(arguments, result, liger=False), ("trl", "vllm")),
    "trl liger": (lambda arguments, result: run_trl(arguments, result, liger=True), ("trl", "vllm", "liger_kernel")),
}
"""What each mode runs, and the packages that it needs."""


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for model, prompts and runs")
    parser.add_argument("--shape", choices=["1.5b", "tiny"], default="1.5b")
    parser.add_argument("--engine", choices=["vllm", "torch"], default="vllm", help="of our side")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--tokens", type=whole(1), default=1024, help="of each completion")
    parser.add_argument("--prompt-words", type=whole(1), default=40, help="numbers of three digits in each prompt")
    parser.add_argument("--prompt-tokens", type=whole(1), default=512, help="most tokens of a prompt")
    parser.add_argument("--steps", type=whole(1), default=5)
    parser.add_argument("--warm-up", type=whole(0), default=2)
    parser.add_argument("--microbatch-tokens", type=whole(1), default=5120)
    parser.add_argument("--checkpointing", default="off")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--overrides", nargs="*", default=[], help="further settings of our side")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=MODES, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Runs one mode in this process, or all of them in processes of their own."""
    arguments = parse()
    arguments.work = arguments.work.resolve()
    if arguments.only:
        MODES[arguments.only][0](arguments, result_of(arguments, arguments.only))
        return
    make_work(arguments)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    results = {}
    for mode in arguments.modes:
        missing = [package for package in MODES[mode][1] if find_spec(package) is None]
        if missing:
            print(f"{mode} is skipped: {', '.join(missing)} not installed")
            continue
        path = result_of(arguments, mode)
        path.unlink(missing_ok=True)
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--only", mode], check=False)
        if path.exists():
            results[mode] = json.loads(path.read_text())
            report(arguments, results)


def result_of(arguments: argparse.Namespace, mode: str) -> Path:
    """Returns the file that a mode writes."""
    path: Path = arguments.work / f"{mode.replace(' ', '_')}.json"
    return path


def report(arguments: argparse.Namespace, results: dict[str, dict[str, Any]]) -> None:
    """Prints the table so far and writes the JSON."""
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    columns = ("step_s", "generate_s", "reward_s", "score_s", "update_s", "sync_s", "peak_gib", "used_gib")
    table = Table("mode", *columns, title=f"{card}: {PROMPTS} x {GROUP} completions of {arguments.tokens} tokens")
    for mode, result in results.items():
        table.add_row(mode, *(f"{result[name]:.2f}" if name in result else "" for name in columns))
    console = Console(width=120)
    console.print(table)
    others = [result["step_s"] for mode, result in results.items() if not mode.startswith("ours")]
    ratios = {
        mode: min(others) / result["step_s"] for mode, result in results.items() if mode.startswith("ours") and others
    }
    for mode, ratio in ratios.items():
        console.print(f"{mode} is {ratio:.2f} times as fast as the faster of TRL's")
    if arguments.json:
        made = {"card": card, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"), "speed_up": ratios}
        settings = {name: str(value) for name, value in vars(arguments).items()}
        arguments.json.write_text(json.dumps({**made, "settings": settings, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    run_main(main)
