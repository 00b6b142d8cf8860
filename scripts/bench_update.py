"""Tokens per second, MFU and memory of the update: policy and reference passes, loss, backward and optimiser step.

    python scripts/bench_update.py --json update.json

Random weights of the Qwen2 1.5B shape with a head of its own (1.78 B parameters), made rollouts of 300 to 4096 tokens
in all, a tenth of whose response positions are mixed; the real training module under Lightning, on one device or, under
torchrun, sharded over several. Every combination of ``--checkpointing`` and ``--compile`` is run, medians over
``--iterations`` after as many warm-ups as compilation needs. Tokens/s and MFU are those of
the update alone, without the reference's passes (``score s``); MFU counts the operations of `ngrpo.modeling.cost` for
one forward and one backward pass, recomputation not counted, against ``--peak`` TFLOP/s. ``activation`` is the
peak beyond weights, gradients and optimiser state. ``loss`` and ``norm`` (of the gradient) are the first step's; the
work is the same whatever the number of processes, so they show what sharding changes. ``--memory`` makes a table of the
peak for one microbatch of 4k, 16k and 64k tokens instead. ``--padded`` is stock transformers for comparison:
right-padded batches,
SDPA, whole logits.
"""

import argparse
import json
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from model_shapes import QWEN2
from rich import get_console
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PretrainedConfig, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from ngrpo.algo import aggregate, kl, ratio
from ngrpo.algo.advantage import group_standardised
from ngrpo.algo.clip import clipped_surrogate
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.entrypoints.arguments import real, whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.attention import IMPLEMENTATION
from ngrpo.modeling.cost import PassCost
from ngrpo.modeling.layers import CHECKPOINTING
from ngrpo.modeling.loading import DTYPES, ModelSource
from ngrpo.modeling.lora import LoraSettings
from ngrpo.modeling.policy import HEAD_ROWS
from ngrpo.training.module import PolicyOptimization
from ngrpo.training.optim.optimizers import EightBitAdamW
from ngrpo.training.update_settings import UpdateSettings
from ngrpo.types.problems import PromptBatch
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Rollout, StopReason

SHAPES = {
    **QWEN2,
    "tiny": {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
             "num_attention_heads": 2, "num_key_value_heads": 2},
}  # fmt: skip
MakeOptimizer = Callable[[Iterable[Any]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Callable[[], MakeOptimizer]] = {
    "adamw": lambda: partial(torch.optim.AdamW, lr=1e-6),
    "adamw_fused": lambda: partial(torch.optim.AdamW, lr=1e-6, fused=torch.cuda.is_available()),
    "adamw_8bit": EightBitAdamW,
}
"""Makers of optimisers, by the names of conf/trainer/optimizer."""
GROUP = 8
GIB = 2**30
MEMORY_TOKENS = (4096, 16384, 65536)


@dataclass(frozen=True)
class RandomSource(ModelSource):
    """A model of random weights, made on the device."""

    shape: str = "1.5b"

    def config(self) -> PretrainedConfig:
        """Returns the architecture."""
        return Qwen2Config(max_position_embeddings=131072, tie_word_embeddings=False, **SHAPES[self.shape])

    def load(self) -> PreTrainedModel:
        """Makes the model; the same weights at every call and on every rank."""
        torch.manual_seed(0)
        with torch.device(device()):
            model = Qwen2ForCausalLM._from_config(
                self.config(), dtype=DTYPES[self.dtype], attn_implementation=IMPLEMENTATION
            )
        return model.eval()


def device() -> torch.device:
    """Returns this process's device."""
    return (
        torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if torch.cuda.is_available() else torch.device("cpu")
    )


class Made:
    """What the training step reads of an experience."""

    def __init__(self, rollouts: list[Rollout]) -> None:
        self.rollouts = rollouts
        self.keys = [number // GROUP for number in range(len(rollouts))]
        self.rewards = torch.tensor([float(number % 2) for number in range(len(rollouts))]).view(-1, GROUP)
        self.truncated = torch.zeros(len(rollouts), dtype=torch.bool)
        self.outcomes = torch.zeros(len(rollouts), dtype=torch.int64)
        self.infinite = torch.zeros(len(rollouts), dtype=torch.bool)


def made_rollout(draw: random.Random, tokens: int, vocabulary: int, mixed: float = 0.1, width: int = 3) -> Rollout:
    """A rollout of so many tokens, an eighth of them prompt, with a share of mixed response positions."""
    prompt = max(1, min(256, tokens // 8))
    generator = torch.Generator().manual_seed(draw.randrange(2**31))
    positions = torch.arange(prompt, tokens)[torch.rand(tokens - prompt, generator=generator) < mixed]
    ids = torch.randint(vocabulary, (len(positions), width), generator=generator, dtype=torch.int32)
    weights = torch.rand(len(positions), width, generator=generator).softmax(-1)
    return Rollout(
        key=draw.randrange(2**31),
        prompt_ids=torch.randint(vocabulary, (prompt,), generator=generator),
        response_ids=torch.randint(vocabulary, (tokens - prompt,), generator=generator),
        log_probs=torch.full((tokens - prompt,), -12.0),
        mixture=Mixture(positions, Record(ids=ids, weights=weights)),
        stop_reason=StopReason.STOP,
    )


def made_rollouts(run: "Run", iteration: int, rank: int, ranks: int) -> list[Rollout]:
    """A rank's groups out of an iteration's, which are the same for every number of ranks."""
    draw, vocabulary = random.Random(iteration), SHAPES[run.shape]["vocab_size"]
    every = [made_rollout(draw, tokens, vocabulary) for tokens in run.lengths]
    return [rollout for number, rollout in enumerate(every) if number // GROUP % ranks == rank]


class Measure(Callback):
    """Keeps the seconds of each iteration, its phases and the peak of memory; skips the warm-ups.

    Args:
        warm_up: iterations that are not counted; of the first one loss and gradient norm are kept.
    """

    def __init__(self, warm_up: int) -> None:
        self.warm_up = warm_up
        self.seconds: list[float] = []
        self.phases: list[dict[str, float]] = []
        self.first = (math.nan, math.nan)
        self.kept = 0
        self._start = 0.0

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Starts the clock."""
        if batch_idx == self.warm_up and torch.cuda.is_available():
            self.kept = torch.cuda.memory_allocated() + gradient_bytes(pl_module)
            torch.cuda.reset_peak_memory_stats()
        self._start = now()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: PromptBatch, batch_idx: int
    ) -> None:
        """Stops it."""
        metrics = trainer.callback_metrics
        if batch_idx == 0:
            self.first = (float(metrics["policy/loss"]), float(metrics["policy/grad_norm"]))
        if batch_idx >= self.warm_up:
            self.seconds.append(now() - self._start)
            self.phases.append({name: float(value) for name, value in metrics.items() if name.startswith("time/")})

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Lets the weights go, which Lightning would copy to host memory."""
        pl_module.policy = None


def now() -> float:
    """Returns the time at which everything that was launched is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def gradient_bytes(module: LightningModule) -> int:
    """Returns what the gradients will take, which are None between the steps."""
    local = (p.to_local() if hasattr(p, "to_local") else p for p in module.parameters() if p.requires_grad)
    return sum(tensor.nbytes for tensor in local)


@dataclass(frozen=True)
class Result:
    """One line of the table; times are medians, memory is in GiB."""

    name: str
    tokens: int
    seconds: float
    tokens_per_s: float
    mfu_percent: float
    score_s: float
    update_s: float
    peak_gib: float
    activation_gib: float
    loss: float
    grad_norm: float


@dataclass(frozen=True)
class Run:
    """What is measured.

    Attributes:
        shape: a key of `SHAPES`.
        lengths: tokens of each sequence, over all ranks.
        microbatch_tokens: budget of one pass.
        checkpointing: of the layers.
        compile: of the layers.
        precision: of the update.
        kl: whether the reference is evaluated too.
        iterations: measured.
        head_rows: tokens whose logits are held at a time.
        gather_once: whether several ranks gather weights once a step.
        dtype: of the parameters.
        optimizer: a key of `OPTIMIZERS`.
        lora: rank of adapters, which alone are trained; 0 for none.
    """

    shape: str
    lengths: tuple[int, ...]
    microbatch_tokens: int
    checkpointing: str
    compile: bool
    precision: str
    kl: bool
    iterations: int
    head_rows: int = HEAD_ROWS
    gather_once: bool = False
    dtype: str = "float32"
    optimizer: str = "adamw_fused"
    lora: int = 0

    @property
    def source(self) -> RandomSource:
        """The model."""
        lora = LoraSettings(rank=self.lora) if self.lora else None
        return RandomSource(
            dtype=self.dtype, checkpointing=self.checkpointing, compile=self.compile, lora=lora, shape=self.shape
        )

    @property
    def name(self) -> str:
        """What distinguishes it."""
        return f"checkpointing {self.checkpointing}{', compiled' if self.compile else ''}"


def algorithm(run: Run) -> Algorithm:
    """GRPO with one optimiser step."""
    return Algorithm(
        group_standardised,
        ratio.token,
        partial(clipped_surrogate, low=0.2, high=0.2),
        aggregate.token_mean,
        kl.k3,
        kl_coef=0.001 if run.kl else 0.0,
        prompts_per_batch=len(run.lengths) // GROUP,
    )


def measured(run: Run, peak: float) -> Result:
    """Trains on made rollouts and times it.

    Raises:
        torch.OutOfMemoryError: a microbatch does not fit.
    """
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    warm_up = 3 if run.compile else 1
    measure = Measure(warm_up)
    trainer = Trainer(
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=ranks,
        strategy=ModelParallelStrategy(data_parallel_size=ranks, tensor_parallel_size=1) if ranks > 1 else "auto",
        max_epochs=1,
        callbacks=[measure],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    settings = UpdateSettings(
        microbatch_tokens=run.microbatch_tokens,
        precision=run.precision,
        head_rows=run.head_rows,
        gather_once=run.gather_once,
    )
    module = PolicyOptimization(run.source, algorithm(run), NeighborMixing(), OPTIMIZERS[run.optimizer](), settings)
    batches = [PromptBatch([], 0, number) for number in range(warm_up + run.iterations)]
    for number, batch in enumerate(batches):
        batch.experience = Made(made_rollouts(run, number, trainer.global_rank, ranks))
    trainer.fit(module, DataLoader(batches, batch_size=None))
    if module.budget.tokens < run.microbatch_tokens:  # training went on with smaller ones
        raise torch.OutOfMemoryError
    highest = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    result = summary(run, measure, highest, peak * ranks)
    del module, trainer
    release()
    return result


def release() -> None:
    """Gives memory and compiled code back before the next run."""
    import gc

    gc.collect()
    torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def summary(run: Run, measure: Measure, highest: int, peak: float) -> Result:
    """Puts the numbers of a run together."""
    seconds, tokens = statistics.median(measure.seconds), sum(run.lengths)
    cost = PassCost.of(RandomSource(shape=run.shape).config())
    operations = 3 * sum(cost(length) for length in run.lengths)
    score, update = (statistics.median(p[f"time/{name}_s"] for p in measure.phases) for name in ("score", "update"))
    return Result(
        run.name,
        tokens,
        seconds,
        tokens / update,
        100 * operations / update / (peak * 1e12),
        score,
        update,
        highest / GIB,
        (highest - measure.kept) / GIB,
        *measure.first,
    )


def padded(run: Run, peak: float, rows: int = 2) -> Result:
    """Stock transformers on the same lengths: right-padded batches of a few rows, SDPA, all logits at once."""
    torch.manual_seed(0)
    config = RandomSource(shape=run.shape).config()
    on_gpu = torch.cuda.is_available()
    dtype = torch.bfloat16 if on_gpu else torch.float32
    with torch.device(device()):
        model = Qwen2ForCausalLM._from_config(config, dtype=dtype, attn_implementation="sdpa").train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=on_gpu)
    measure = Measure(0)
    for number in range(run.iterations + 1):
        if number == 1 and on_gpu:
            measure.kept = torch.cuda.memory_allocated() + sum(p.nbytes for p in model.parameters())
            torch.cuda.reset_peak_memory_stats()
        start = now()
        for at in range(0, len(run.lengths), rows):
            padded_backward(model, run.lengths[at : at + rows])
        optimizer.step()
        optimizer.zero_grad()
        if number:
            measure.seconds.append(now() - start)
            measure.phases.append({"time/score_s": 0.0, "time/update_s": measure.seconds[-1]})
    highest = torch.cuda.max_memory_allocated() if on_gpu else 0
    result = replace(summary(run, measure, highest, peak), name="stock transformers, padded, no reference")
    del model, optimizer
    release()
    return result


def padded_backward(model: PreTrainedModel, lengths: tuple[int, ...]) -> None:
    """Forward and backward of one padded microbatch."""
    width = max(lengths)
    ids = torch.randint(model.config.vocab_size, (len(lengths), width), device=model.device)
    mask = torch.arange(width, device=model.device) < torch.tensor(lengths, device=model.device)[:, None]
    logits: Tensor = model(input_ids=ids, attention_mask=mask.long(), use_cache=False).logits[:, :-1]
    scores = logits.float().log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    (scores * mask[:, 1:]).mean().backward()


def drawn_lengths(count: int, low: int, high: int) -> tuple[int, ...]:
    """Uniform lengths, the same at every call."""
    generator = torch.Generator().manual_seed(1)
    return tuple(int(n) for n in torch.randint(low, high, (count,), generator=generator))


def speed_runs(arguments: argparse.Namespace) -> Iterator[Run]:
    """Yields what is asked for."""
    lengths = drawn_lengths(arguments.sequences, arguments.shortest, arguments.longest)
    for checkpointing, compiled in product(arguments.checkpointing, arguments.compile):
        yield Run(
            arguments.shape, lengths, arguments.microbatch_tokens, checkpointing, compiled == "on", arguments.precision,
            not arguments.no_kl, arguments.iterations, arguments.head_rows, arguments.gather_once,
        )  # fmt: skip


def memory_runs(arguments: argparse.Namespace) -> Iterator[Run]:
    """Yields one microbatch of each size, of sequences as long as the longest."""
    for run in speed_runs(arguments):
        for tokens in arguments.memory:
            count = max(GROUP, tokens // arguments.longest)
            yield replace(run, lengths=(tokens // count,) * count, microbatch_tokens=tokens, iterations=1)


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="1.5b")
    parser.add_argument(
        "--sequences", type=whole(1), default=64, help=f"over all processes; a multiple of {GROUP} for each"
    )
    parser.add_argument("--shortest", type=whole(1), default=300)
    parser.add_argument("--longest", type=whole(1), default=4096)
    parser.add_argument("--microbatch-tokens", type=whole(1), default=16384)
    parser.add_argument("--head-rows", type=whole(1), default=HEAD_ROWS)
    parser.add_argument("--checkpointing", nargs="+", choices=CHECKPOINTING, default=["selective", "full"])
    parser.add_argument("--compile", nargs="+", choices=["off", "on"], default=["off", "on"])
    parser.add_argument("--precision", default="bf16-mixed")
    parser.add_argument("--no-kl", action="store_true", help="no reference passes")
    parser.add_argument("--gather-once", action="store_true", help="trainer.gather_once, for several processes")
    parser.add_argument("--iterations", type=whole(1), default=3)
    parser.add_argument(
        "--memory", nargs="*", type=int, help=f"token counts of one microbatch; {MEMORY_TOKENS} if none"
    )
    parser.add_argument("--padded", action="store_true", help="stock transformers too")
    parser.add_argument("--peak", type=real(0), default=989.0, help="TFLOP/s of one device in bfloat16; an H100's")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.memory == []:
        arguments.memory = list(MEMORY_TOKENS)
    return arguments


def main() -> None:
    """Measures and reports."""
    arguments = parse()
    runs = list(memory_runs(arguments) if arguments.memory else speed_runs(arguments))
    results = []
    for run, measure in [(run, measured) for run in runs] + [(runs[0], padded)] * arguments.padded:
        start = time.perf_counter()
        try:
            results.append(measure(run, arguments.peak))
        except torch.OutOfMemoryError:
            get_console().print(f"{run.name}: {run.microbatch_tokens} tokens a microbatch do not fit")
            release()
            continue
        if int(os.environ.get("RANK", 0)) == 0:
            get_console().print(f"measured in {time.perf_counter() - start:.0f} s")
            report(arguments, runs, results)


def report(arguments: argparse.Namespace, runs: list[Run], results: list[Result]) -> None:
    """Prints the table so far and writes the JSON."""
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    columns = ("tokens", "s", "tokens/s", "MFU %", "score s", "update s", "peak GiB", "activation GiB", "loss", "norm")
    table = Table("run", *columns, title=f"{ranks} x {card}, {arguments.shape}, {arguments.precision}")
    for result in results:
        name, tokens, *numbers = asdict(result).values()
        table.add_row(name, str(tokens), *(f"{number:.5g}" for number in numbers))
    Console(width=160).print(table)
    if arguments.json:
        made = {"card": card, "ranks": ranks, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
        made |= {"runs": [asdict(run) for run in runs], "results": [asdict(result) for result in results]}
        arguments.json.write_text(json.dumps(made, indent=2) + "\n")


if __name__ == "__main__":
    run_main(main)
