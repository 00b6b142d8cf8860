"""TRL's trainer on the work of `bench_step`."""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from kernel_times import IterationKernels
from step_times import OPTIMIZER, USED, Used, now, reset_peak, write


def run_trl(
    arguments: argparse.Namespace,
    folder: Path,
    prompts: Sequence[str],
    group: int,
    result: Path,
    record_after: int | None,
    liger: bool,
    exploring: bool,
) -> None:
    """Runs TRL's trainer with vLLM in its process, on the model in a folder; TRL's vLLM, or ours that explores."""
    from datasets import Dataset
    from transformers import AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    rows = Dataset.from_list([{"prompt": text} for text in prompts])
    micro = 8
    own: dict[str, Any] = {}
    if not exploring:
        own = {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": arguments.engine_memory,
               "vllm_max_model_length": arguments.tokens + arguments.prompt_tokens,
               "generation_kwargs": {"ignore_eos": True}}  # fmt: skip
    config = GRPOConfig(
        output_dir=str(arguments.work / "trl"), per_device_train_batch_size=micro,
        gradient_accumulation_steps=group * arguments.prompts // micro, num_generations=group,
        max_completion_length=arguments.tokens, use_cpu=not torch.cuda.is_available(),
        beta=0.001, bf16=True, gradient_checkpointing=True, learning_rate=1e-6,
        max_steps=arguments.warm_up + arguments.steps + (record_after is not None), logging_steps=1,
        report_to="none", save_strategy="no",
        temperature=1.0, use_liger_kernel=liger, model_init_kwargs={"dtype": "bfloat16"}, **own,
    )  # fmt: skip

    def reward(completions: list[str], **_: Any) -> list[float]:
        return [float(number % 2) for number in range(len(completions))]

    made: Callable[..., Any] = partial(exploring_trainer, arguments, folder) if exploring else GRPOTrainer
    trainer = made(
        model=str(folder), args=config, train_dataset=rows, reward_funcs=reward,
        processing_class=AutoTokenizer.from_pretrained(folder),
    )  # fmt: skip
    kernels = IterationKernels(record_after)
    trainer._generate = kernels.generation(trainer._generate)
    OPTIMIZER.watch()
    spent: dict[str, list[float]] = {"generate": [], "generate_and_score": []}
    for method, name in (("_generate", "generate"), ("_generate_and_score_completions", "generate_and_score")):
        setattr(trainer, method, timed(getattr(trainer, method), spent[name]))
    steps: list[dict[str, float]] = []
    replay: dict[str, float] = {}

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.start = now()

        def on_step_end(self, arguments_: Any, state: Any, *_: Any, **__: Any) -> None:
            whole, generate, both = now() - self.start, spent["generate"][-1], spent["generate_and_score"][-1]
            step = {"step_s": whole, "generate_s": generate, "score_s": both - generate, "update_s": whole - both}
            step["optimizer_s"] = OPTIMIZER.taken()
            if not kernels.recorded(state.global_step):
                steps.append(step)
            if len(steps) == arguments.warm_up:
                reset_peak()
            more = dict(zip(Used.NAMES, USED.peaks(), strict=True)) | kernels.ended(state.global_step)
            write(result, steps[arguments.warm_up :], more | replay)

        def on_log(self, arguments_: Any, state: Any, control: Any, logs: dict[str, Any], **__: Any) -> None:
            replay.update({name: float(logs[name]) for name in logs if name.startswith("exploration/")})

    trainer.add_callback(Clock())
    reset_peak()
    trainer.train()


def exploring_trainer(arguments: argparse.Namespace, folder: Path, **kwargs: Any) -> Any:
    """Returns TRL's trainer with exploration, by our vLLM in its process or by the PyTorch engine."""
    from ngrpo.exploration.neighbor import NeighborMixing
    from ngrpo.modeling.loading import ModelSource
    from ngrpo.plugins.trl import ExploringGRPOTrainer
    from ngrpo.rollout.vllm.engine import VllmEngine

    strategy, engine = NeighborMixing(), None
    if arguments.engine == "vllm":
        engine = VllmEngine(
            ModelSource(str(folder), dtype="bfloat16"), strategy, arguments.prompt_tokens, arguments.tokens,
            max_batch_size=kwargs["args"].generation_batch_size, gpu_memory_utilization=arguments.engine_memory,
        )  # fmt: skip
    return ExploringGRPOTrainer(exploration=strategy, engine=engine, **kwargs)


def timed(function: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """Returns a function that notes how long it took."""

    def run(*args: Any, **kwargs: Any) -> Any:
        start = now()
        made = function(*args, **kwargs)
        seconds.append(now() - start)
        return made

    return run
