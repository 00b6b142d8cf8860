"""The command line of the comparison at start-up, for one model: its figures as JSON, status 1 where it would refuse.

    python scripts/check_start.py --model FOLDER --engine vllm --json start.json
    python scripts/check_start.py --random qwen2_1_5b --engine vllm --dtype bfloat16

``--random`` makes a model of that shape with random weights in a temporary folder. ``faults`` are the figures with
faults injected on purpose: the mixtures dropped, and the responses' positions counted from one too high; a comparison
that would let them pass says nothing. ``seconds`` has the comparison's time without loading and starting.
"""

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import torch
from rich import get_console
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen2Config

from ngrpo.config.engine_dtype import engine_dtype
from ngrpo.entrypoints.arguments import real
from ngrpo.entrypoints.check_replay_command import make_strategy
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.model_check.comparison import Finding, Numbers, OwnModel, compare, requests, sampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.packing import PackedBatch, pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.precision import PRECISIONS, computing_in
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Rollout

SHAPES = {
    "tiny": {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4},
    "qwen2_1_5b": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12},
}
_PROMPT, _RESPONSE = 64, 64


@dataclasses.dataclass(frozen=True)
class StartReport:
    """What the comparison found.

    Attributes:
        device: that trainer and engine were on.
        refused: a run would be refused at its start.
        seconds: of generating and of comparing.
        figures: a row for each path and kind of rollouts.
        faults: the rows of the trainer by injected fault.
    """

    device: str
    refused: bool
    seconds: dict[str, float]
    figures: list[dict[str, object]]
    faults: dict[str, list[dict[str, object]]]


def main() -> None:
    """Loads, starts, compares, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--model")
    which.add_argument("--random", choices=list(SHAPES))
    parser.add_argument("--engine", choices=["torch", "vllm"], default="torch")
    parser.add_argument("--own-process", action="store_true")
    parser.add_argument("--exploration", nargs="+", default=["neighbor"], help="a preset, and changes to it")
    parser.add_argument("--temperature", type=real(0), default=1.0)
    parser.add_argument("--dtype", default="float32", help="of the policy's parameters")
    parser.add_argument("--precision", choices=list(PRECISIONS), default="32-true", help="of the trainer")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.random:
            random_model(arguments.random, Path(folder))
        report = checked(arguments, ModelSource(arguments.model or folder, dtype=arguments.dtype))
    text = json.dumps(dataclasses.asdict(report), indent=2)
    get_console().print_json(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")
    raise SystemExit(int(report.refused))


def random_model(shape: str, folder: Path) -> None:
    """Writes a random Qwen2 of a shape, in bfloat16, with weights so large that its tokens differ."""
    torch.manual_seed(0)
    sizes = SHAPES[shape]
    config = Qwen2Config(
        **sizes,
        vocab_size=151_936 if shape != "tiny" else 4_096,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        initializer_range=1.5 * sizes["hidden_size"] ** -0.5,
        tie_word_embeddings=False,
    )
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)


@torch.no_grad()
def checked(arguments: argparse.Namespace, source: ModelSource) -> StartReport:
    """Compares, once as it is and once with each fault."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    strategy = make_strategy(*arguments.exploration)
    policy = ScoringModel(source.load(), strategy.initial_parameters(source.config().hidden_size)).to(device)
    engine = made_engine(arguments, source, strategy)
    engine.start(device)
    engine.sync_loaded(policy.lm.named_parameters())
    vocabulary = source.config().vocab_size
    bound = bind(strategy, engine.embedding().to(device), Vocabulary(vocabulary, frozenset(), {}))
    mixed_in = PRECISIONS[arguments.precision]
    precision: Callable[[], AbstractContextManager[None]] = (
        nullcontext if mixed_in is None else partial(computing_in, policy, mixed_in)
    )
    asked = requests(vocabulary, _PROMPT, strategy.mixes)
    start = time.perf_counter()
    rollouts = engine.generate(asked, sampling(arguments.temperature, _RESPONSE), bound)
    generated = time.perf_counter()
    engine.sleep()
    own = OwnModel(policy, strategy, arguments.temperature, precision, Numbers(mixed_in or policy.lm.dtype))
    numbers = Numbers.of(engine)

    def findings(trainer: Sequence[Tensor]) -> list[Finding]:
        return compare(own, rollouts, [one.explore for one in asked], trainer, numbers)

    def trainer(replayed: Sequence[Rollout], change: Callable[[PackedBatch], PackedBatch]) -> list[Tensor]:
        with precision():
            scores = policy(change(pack(replayed).to(device)), arguments.temperature, strategy).log_prob.cpu()
        return list(torch.split(scores, [rollout.generated for rollout in rollouts]))

    right = findings(trainer(rollouts, lambda batch: batch))
    compared = time.perf_counter()
    plain = [rollout.without_mixtures() for rollout in rollouts]
    faults = {
        "mixtures ignored": findings(trainer(plain, lambda batch: batch)),
        "positions shifted": findings(trainer(rollouts, shifted)),
    }
    engine.close()
    return StartReport(
        device=torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        refused=any(finding.deviation.excessive for finding in right),
        seconds={"generate": generated - start, "compare": compared - generated},
        figures=figures(right),
        faults={name: figures([f for f in found if f.path == "trainer"]) for name, found in faults.items()},
    )


def shifted(batch: PackedBatch) -> PackedBatch:
    """Counts the positions of the responses from one too high."""
    positions = batch.positions.clone()
    positions[batch.response_slots] += 1
    return dataclasses.replace(batch, positions=positions)


def figures(findings: Sequence[Finding]) -> list[dict[str, object]]:
    """Returns findings as plain values."""
    return [
        {"path": finding.path, "rollouts": finding.kind, "dtype": str(finding.numbers.dtype).removeprefix("torch.")}
        | dataclasses.asdict(finding.deviation)
        | {"refused": finding.deviation.excessive}
        for finding in findings
    ]


def made_engine(arguments: argparse.Namespace, source: ModelSource, strategy: Exploration) -> RolloutEngine:
    """Returns the engine asked for, not started."""
    dtype = engine_dtype(arguments.precision)
    if arguments.engine == "torch":
        return TorchEngine(source, dtype=dtype)
    from ngrpo.rollout.vllm.engine import VllmEngine

    return VllmEngine(
        source, strategy, _PROMPT, _RESPONSE, dtype=dtype, gpu_memory_utilization=0.4, own_process=arguments.own_process
    )


if __name__ == "__main__":
    run_main(main)
