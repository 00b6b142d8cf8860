"""The memory that ``ngrpo plan`` says beside the memory that is measured, case by case, on one GPU.

    python scripts/bench_plan.py --json plan.json --markdown plan.md

Each case is an update of ``scripts/bench_update.py``: random weights of the Qwen2 1.5B shape, sequences of 2,048
tokens, two or more microbatches a step, a reference; the most memory that PyTorch's allocator had in use, beside the
plan's. Every checkpointing with and without compilation at two sizes of microbatch, then other optimisers,
dtypes and adapters. What does not fit or is not installed is said and left out. No case is started after ``--seconds``.
``--engine`` starts vLLM on the same weights at the end and compares what it takes, awake and asleep.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice, product
from pathlib import Path

import torch
from bench_update import GIB, GROUP, OPTIMIZERS, RandomSource, Run, device, measured, release
from transformers import PretrainedConfig

from ngrpo.entrypoints.arguments import real, whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.errors import SettingError
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.loading import DTYPES
from ngrpo.modeling.precision import PRECISIONS
from ngrpo.planning.engine_memory import EngineMemory
from ngrpo.planning.memory_plan import Phase, plan_memory
from ngrpo.planning.planned_engines import PlannedVllm
from ngrpo.planning.run_settings import RunSettings

LENGTH = 2048
PEAK = 989.0


@dataclass(frozen=True)
class NoEngine:
    """The update alone."""

    slots: int = 1
    concurrent: bool = False

    def memory(self, config: PretrainedConfig, numbers: int, device_bytes: int) -> EngineMemory:
        """Returns no bytes."""
        return EngineMemory(0, 0, 0, 0, 0, 0)


@dataclass(frozen=True)
class Comparison:
    """A line of the table; GiB.

    Attributes:
        case: what is measured.
        microbatch_tokens: of a pass.
        planned: the plan's.
        measured: PyTorch's allocator's.
        update_s: seconds of the optimiser step.
    """

    case: str
    microbatch_tokens: int
    planned: float
    measured: float
    update_s: float

    @property
    def difference(self) -> float:
        """Of the plan from what was measured, in percent."""
        return 100 * (self.planned / self.measured - 1) if self.measured else float("nan")


def run_settings(run: Run) -> RunSettings:
    """Returns what the plan is told of a benchmark's run."""
    return RunSettings(
        config=run.source.config(),
        trust_remote_code=False,
        dtype=DTYPES[run.dtype],
        checkpointing=run.checkpointing,
        compile=run.compile,
        lora=run.source.lora,
        mixed_in=PRECISIONS[run.precision],
        microbatch_tokens=run.microbatch_tokens,
        head_rows=run.head_rows,
        offload_reference=False,
        offload_optimizer=False,
        gather_once=False,
        optimizer=OPTIMIZERS[run.optimizer](),
        critic_optimizer=None,
        reference=run.kl and not run.lora,
        data_ranks=1,
        tensor_parallel_size=1,
        prompts_per_batch=len(run.lengths) // GROUP,
        optimizer_steps=1,
        group_size=GROUP,
        max_prompt_tokens=LENGTH // 8,
        max_new_tokens=LENGTH - LENGTH // 8,
        engine=NoEngine(),
        device_bytes=0,
    )


def cases(arguments: argparse.Namespace) -> Iterator[tuple[str, Run]]:
    """Yields names and runs, the plain ones first."""
    plain = Run(arguments.shape, (LENGTH,) * 2 * GROUP, 0, "full", False, "bf16-mixed", True, 1)
    others = {
        "AdamW not fused": replace(plain, optimizer="adamw"),
        "8-bit AdamW": replace(plain, optimizer="adamw_8bit"),
        "LoRA": replace(plain, lora=16),
        "bfloat16 weights": replace(plain, dtype="bfloat16", precision="32-true"),
    }
    matrix = [
        replace(plain, checkpointing=checkpointing, compile=compiled)
        for compiled, checkpointing in product((False, True), ("full", "selective", "off"))
    ]
    named = [(run.name, run) for run in matrix[:3]]
    named += [(f"{run.name}, {name}", run) for name, run in others.items()]
    named += [(run.name, run) for run in matrix[3:]]
    for name, run in named:
        for tokens in arguments.tokens:
            yield name, replace(run, microbatch_tokens=tokens)


def compared(name: str, run: Run) -> Comparison:
    """Plans and measures one case."""
    plan = plan_memory(run_settings(run))
    planned = max(plan.total(phase) for phase in (Phase.SCORE, Phase.UPDATE, Phase.STEP))
    result = measured(run, PEAK)
    return Comparison(name, run.microbatch_tokens, planned / GIB, result.peak_gib, result.update_s)


def attempts(arguments: argparse.Namespace) -> tuple[list[Comparison], list[str]]:
    """Makes every case that there is time for; returns the comparisons, and what was left out."""
    found: list[Comparison] = []
    left_out: list[str] = []
    start = time.perf_counter()
    for name, run in islice(cases(arguments), arguments.cases):
        said = f"{name}, {run.microbatch_tokens} tokens"
        if time.perf_counter() - start > arguments.seconds:
            left_out.append(f"{said}: no time")
            store(arguments, found, left_out, [])
            continue
        try:
            found.append(compared(name, run))
        except (torch.OutOfMemoryError, SettingError, RuntimeError) as error:
            left_out.append(f"{said}: {type(error).__name__}: {str(error)[:200]}")
        release()
        print(found[-1] if found and found[-1].case == name else left_out[-1], flush=True)
        store(arguments, found, left_out, [])
    return found, left_out


def engine_memory(arguments: argparse.Namespace) -> list[Comparison]:
    """Starts vLLM on random weights, and compares the device's memory in use with the plan's engine."""
    from ngrpo.rollout.vllm.engine import VllmEngine

    fraction, total = 0.35, torch.cuda.get_device_properties(0).total_memory
    source = RandomSource(dtype="bfloat16", shape=arguments.shape)
    with tempfile.TemporaryDirectory() as folder:
        source.load().save_pretrained(folder)
        release()
        before = in_use()
        model = replace(source, path=folder)
        engine = VllmEngine(model, NeighborMixing(), 1024, 1024, gpu_memory_utilization=fraction)
        engine.start(device())
        awake = in_use() - before
        engine.sleep()
        asleep = in_use() - before
        engine.close()
    numbers = sum(parameter.numel() for parameter in source.load().parameters())
    planned = PlannedVllm(2, fraction, 256).memory(source.config(), numbers, total)
    return [
        Comparison("vLLM awake", 0, planned.awake / GIB, awake / GIB, 0.0),
        Comparison("vLLM asleep", 0, planned.asleep / GIB, asleep / GIB, 0.0),
    ]


def in_use() -> int:
    """Returns the device's bytes in use by every process."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free


def table(found: list[Comparison], card: str, date: str) -> str:
    """Returns the comparisons in Markdown."""
    lines = [f"{card}, {date}", "", "| case | tokens a microbatch | planned GiB | measured GiB | difference |"]
    lines.append("|---|---|---|---|---|")
    for one in found:
        tokens = f"{one.microbatch_tokens:,}" if one.microbatch_tokens else ""
        lines.append(f"| {one.case} | {tokens} | {one.planned:.1f} | {one.measured:.1f} | {one.difference:+.1f} % |")
    return "\n".join(lines) + "\n"


def store(
    arguments: argparse.Namespace, found: list[Comparison], left_out: list[str], engine: list[Comparison]
) -> None:
    """Writes what there is so far."""
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    date = time.strftime("%Y-%m-%d")
    if arguments.json:
        made = {"card": card, "torch": torch.__version__, "date": date, "shape": arguments.shape}
        made |= {"results": [asdict(one) for one in found], "left_out": left_out}
        made |= {"engine": [asdict(one) for one in engine]}
        arguments.json.write_text(json.dumps(made, indent=2) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(table([*found, *engine], card, date))


def main() -> None:
    """Compares and reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=["1.5b", "tiny"], default="1.5b")
    parser.add_argument("--tokens", nargs="+", type=int, default=[6144, 16384], help="of a microbatch")
    parser.add_argument("--seconds", type=real(0), default=330.0, help="after which no case is started")
    parser.add_argument("--cases", type=whole(1), help="the first so many; all of them if it is not given")
    parser.add_argument("--engine", action="store_true", help="compare vLLM's memory too")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    found, left_out = attempts(arguments)
    engine = engine_memory(arguments) if arguments.engine else []
    store(arguments, found, left_out, engine)
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(table([*found, *engine], card, time.strftime("%Y-%m-%d")))
    print(*left_out, sep="\n")


if __name__ == "__main__":
    run_main(main)
