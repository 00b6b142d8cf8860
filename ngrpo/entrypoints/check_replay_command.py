"""The command line that compares trainer and engine: log-probs of rollouts at mixed and plain positions, scored again.

    python scripts/check_replay.py --model FOLDER --engine vllm --json replay.json
    python scripts/check_replay.py --model FOLDER --exploration gumbel exploration.tau_g=0.5

Prompts are random token ids. ``ignored`` is the difference when the trainer leaves the mixtures out: without an effect
there the comparison would say nothing.
"""

import argparse
import json
import random
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir
from rich import get_console
from torch import Tensor

from ngrpo.config.instantiate import build
from ngrpo.config.schema import register
from ngrpo.entrypoints.arguments import real, whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.entrypoints.hydra_main import CONF
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.random import request_key
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Request, Rollout, Sampling


def main() -> None:
    """Generates, scores, reports."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--engine", choices=["torch", "vllm"], default="torch")
    parser.add_argument("--requests", type=whole(1), default=8)
    parser.add_argument("--prompt", type=whole(1), default=64)
    parser.add_argument("--tokens", type=whole(1), default=256)
    parser.add_argument("--exploration", nargs="+", default=["neighbor"], help="a preset, and changes to it")
    parser.add_argument("--temperature", type=real(0), default=1.0)
    parser.add_argument("--dtype", default="bfloat16" if torch.cuda.is_available() else "float32")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    source = ModelSource(arguments.model, dtype=arguments.dtype)
    strategy = make_strategy(*arguments.exploration)
    engine = make_engine(arguments, source, strategy)
    engine.start(device)
    size = source.config().vocab_size
    bound = bind(strategy, engine.embedding().to(device), Vocabulary(size, frozenset(), {}))
    draw = random.Random(0)
    requests = [
        Request(tuple(draw.randrange(10, size - 10) for _ in range(arguments.prompt)), request_key(0, number))
        for number in range(arguments.requests)
    ]
    rollouts = engine.generate(requests, Sampling(arguments.temperature, arguments.tokens, ()), bound)
    engine.sleep()
    model = ScoringModel(source.load(), bound.parameters).to(device)
    differences = compare(model, strategy, arguments.temperature, rollouts)
    summary = {
        name: {"tokens": len(d), "mean": float(d.mean()), "max": float(d.max())}
        for name, d in differences.items()
        if len(d)  # a strategy may mix everywhere
    }
    get_console().print(summary)
    if arguments.json:
        arguments.json.write_text(json.dumps(summary, indent=2) + "\n")


def make_strategy(preset: str, *changes: str) -> Exploration:
    """Builds a strategy from its yaml."""
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return build(compose("train", overrides=[f"exploration={preset}", *changes]).exploration)


def make_engine(arguments: argparse.Namespace, source: ModelSource, strategy: Exploration) -> RolloutEngine:
    """Returns the engine asked for, not started."""
    if arguments.engine == "torch":
        return TorchEngine(source)
    from ngrpo.rollout.vllm.engine import VllmEngine

    return VllmEngine(
        source, strategy, arguments.prompt, arguments.tokens, dtype=arguments.dtype, gpu_memory_utilization=0.4
    )


@torch.no_grad()
def compare(
    model: ScoringModel, strategy: Exploration, temperature: float, rollouts: list[Rollout]
) -> dict[str, Tensor]:
    """Returns |trainer - engine| of the tokens at mixed and plain positions, and of all with mixtures ignored."""
    found: dict[str, list[Tensor]] = {"mixed": [], "plain": [], "ignored": []}
    for rollout in rollouts:
        at = torch.arange(rollout.tokens - rollout.generated, rollout.tokens)
        mixed = torch.isin(at, rollout.mixture.positions)
        plain = rollout.without_mixtures()
        difference, ignored = (
            (score(model, strategy, temperature, each) - rollout.generated_log_probs).abs() for each in (rollout, plain)
        )
        found["mixed"].append(difference[mixed])
        found["plain"].append(difference[~mixed])
        found["ignored"].append(ignored)
    return {name: torch.cat(parts) for name, parts in found.items()}


def score(model: ScoringModel, strategy: Exploration, temperature: float, rollout: Rollout) -> Tensor:
    """Returns the trainer's log-probs of one rollout, on the CPU."""
    device = next(model.parameters()).device
    return model(pack([rollout]).to(device), temperature, strategy).log_prob.cpu()


if __name__ == "__main__":
    run_main(main)
