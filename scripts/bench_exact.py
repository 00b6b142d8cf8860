"""The difference of trainer and torch engine in log-probs, and the seconds of both, without and with exact computation.

    python scripts/bench_exact.py --models qwen2-1.5b llama --json exact.json

Random weights; ``--requests`` rollouts of ``--tokens`` tokens each with neighbor mixing by the torch engine, then the
trainer's forward and backward pass over them in microbatches of ``--microbatch`` tokens. The largest ``|trainer -
engine|`` is given at mixed positions and the tokens right after them, and at all others. Seconds are of one run after
a short one.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch
from rich import get_console
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, Qwen2Config

from ngrpo.entrypoints.arguments import whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.random import request_key
from ngrpo.exploration.runtime.bound import BoundExploration, bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.exact.model import make_exact
from ngrpo.modeling.layers import prepare_layers
from ngrpo.modeling.loading import DTYPES, ModelSource
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Request, Rollout, Sampling

T = TypeVar("T")

MODELS: dict[str, PretrainedConfig] = {
    "qwen2-1.5b": Qwen2Config(
        vocab_size=151936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
        num_key_value_heads=2, max_position_embeddings=16384, tie_word_embeddings=False, eos_token_id=2,
    ),
    "llama": LlamaConfig(
        vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
        num_key_value_heads=4, max_position_embeddings=4096, tie_word_embeddings=True, eos_token_id=2,
    ),
    "tiny": Qwen2Config(
        vocab_size=512, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True, eos_token_id=2,
    ),
}  # fmt: skip
"""The Qwen2 1.5B shape with a head of its own (1.78 B parameters), a smaller Llama, and a tiny one."""
STRATEGY = NeighborMixing(rate=0.1, k=3, end_token=None)
TEMPERATURE = 0.7
SHORT = 8
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def main() -> None:
    """Measures and reports."""
    arguments = parse()
    device = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "cpu"
    made: dict[str, Any] = {"device": device, "torch": torch.__version__, "results": []}
    settings = ("requests", "prompt", "tokens", "microbatch")
    made |= {name: getattr(arguments, name) for name in settings}
    for name in arguments.models:
        for dtype in arguments.dtypes:
            for result in compared(name, dtype, arguments):
                made["results"].append(result)
                get_console().print(result)
                if arguments.json:
                    arguments.json.write_text(json.dumps(made, indent=1))


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=["bfloat16"])
    parser.add_argument("--requests", type=whole(1), default=32)
    parser.add_argument("--prompt", type=whole(1), default=64)
    parser.add_argument("--tokens", type=whole(1), default=512)
    parser.add_argument("--microbatch", type=whole(1), default=8192)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def compared(name: str, dtype: str, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yields what is measured of a model without and with exact computation."""
    with TemporaryDirectory() as folder:
        torch.manual_seed(0)
        with DEVICE:
            AutoModelForCausalLM.from_config(MODELS[name], dtype=DTYPES[dtype]).save_pretrained(folder)
        source = ModelSource(folder, dtype=dtype)
        for exact in (True, False):
            yield {"model": name, "dtype": dtype, "exact": exact} | measured(source, exact, arguments)


def measured(source: ModelSource, exact: bool, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the differences and seconds of one engine and one trainer."""
    engine = TorchEngine(source, arguments.requests, exact=exact)
    engine.start(DEVICE)
    requests = requests_of(arguments, engine.lm.config.vocab_size)
    bound = bound_to(engine)
    sampling = Sampling(temperature=TEMPERATURE, max_new_tokens=arguments.tokens, stop_ids=())
    engine.generate(requests, replace(sampling, max_new_tokens=SHORT), bound)
    rollouts, rollout_s = timed(lambda: engine.generate(requests, sampling, bound))
    engine.close()
    lm = source.load().to(DEVICE)
    if exact:
        make_exact(lm)
    model = ScoringModel(lm)
    prepare_layers(lm.base_model.layers, "full", compiled=False)
    together = max(1, arguments.microbatch // (arguments.prompt + arguments.tokens))
    scored(model, rollouts[:together], together, backward=True)
    with torch.no_grad():
        _, score_s = timed(lambda: scored(model, rollouts, together, backward=False))
    trained, update_s = timed(lambda: scored(model, rollouts, together, backward=True))
    seconds = {"rollout_s": rollout_s, "score_s": score_s, "update_s": update_s}
    return differences(trained, rollouts) | {name: round(value, 3) for name, value in seconds.items()}


def requests_of(arguments: argparse.Namespace, vocabulary: int) -> list[Request]:
    """Returns random prompts, all different, of up to ``--prompt`` tokens."""
    generator = torch.Generator().manual_seed(0)
    lengths = [max(1, arguments.prompt - number) for number in range(arguments.requests)]
    ids = [torch.randint(10, vocabulary, (length,), generator=generator).tolist() for length in lengths]
    return [Request(tuple(prompt), request_key(0, 0, number, 0)) for number, prompt in enumerate(ids)]


def bound_to(engine: TorchEngine) -> BoundExploration:
    """Binds the strategy to the engine's model."""
    table = engine.embedding()
    return bind(STRATEGY, table, Vocabulary(len(table), frozenset({0, 1, 2}), {}))


def scored(model: ScoringModel, rollouts: Sequence[Rollout], together: int, backward: bool) -> Tensor:
    """Returns the trainer's log-probs of all tokens, microbatch by microbatch."""
    found = []
    for start in range(0, len(rollouts), together):
        batch = pack(rollouts[start : start + together]).to(DEVICE)
        log_prob = model(batch, TEMPERATURE, STRATEGY).log_prob
        if backward:
            log_prob.sum().backward()
        found.append(log_prob.detach())
    model.zero_grad()
    return torch.cat(found)


def differences(log_probs: Tensor, rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """Returns the largest and mean |trainer - engine|, apart for mixed positions."""
    away = (log_probs.cpu() - torch.cat([rollout.log_probs for rollout in rollouts])).abs()
    near = []
    for rollout in rollouts:
        slots = torch.zeros(rollout.generated + 1, dtype=torch.bool)
        index = rollout.mixture.positions - len(rollout.prompt_ids)
        slots[index] = slots[index + 1] = True
        near.append(slots[:-1])
    mixed = torch.cat(near)
    return {
        "tokens": len(away),
        "mixed": sum(len(rollout.mixture.positions) for rollout in rollouts),
        "max_mixed": float(away[mixed].max()),
        "max_plain": float(away[~mixed].max()),
        "mean": float(away.mean()),
        "different": int((away > 0).sum()),
    }


def timed(run: Callable[[], T]) -> tuple[T, float]:
    """Returns the result and its seconds."""
    synchronise()
    start = time.perf_counter()
    made = run()
    synchronise()
    return made, time.perf_counter() - start


def synchronise() -> None:
    """Waits for the device."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    run_main(main)
