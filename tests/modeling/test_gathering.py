"""What two ranks tell each other when weights are gathered once, and when they are gathered anew in each pass."""

from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from forked import call_in_ranks
from made_rollouts import rollout
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Qwen2Config, Qwen2ForCausalLM

from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.attention import IMPLEMENTATION
from ngrpo.modeling.gathering import gathered_once, reshard
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.sharding import full, shard

LAYERS, PASSES = 2, 3
GROUPS = LAYERS + 1  # the root too


def sharded() -> ScoringModel:
    config = Qwen2Config(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=LAYERS, num_attention_heads=2,
        num_key_value_heads=1,
    )  # fmt: skip
    torch.manual_seed(0)
    lm = Qwen2ForCausalLM._from_config(config, attn_implementation=IMPLEMENTATION)
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("data_parallel", "tensor_parallel"))
    return shard(ScoringModel(lm), mesh, mixed_in=torch.bfloat16)


class Heard(TorchDispatchMode):
    """Counts operators by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func._schema.name] += 1
        return func(*args, **(kwargs or {}))


def counted(model: ScoringModel, once: bool, learn: bool) -> tuple[int, int]:
    """Makes passes; returns how often weights were gathered and gradients summed."""
    together: AbstractContextManager[Any] = gathered_once(model) if once else nullcontext(iter)
    with Heard() as heard, torch.set_grad_enabled(learn), together as in_turn:
        for part in in_turn([[number] for number in range(PASSES)]):
            tokens = range(part[0], part[0] + 8)
            scores = model(pack([rollout(tokens[:3], tokens[3:])]), 1.0, TokenSampling())
            if learn:
                scores.log_prob.sum().backward()
    reshard(model)
    return heard.counts["c10d::_allgather_base_"], heard.counts["c10d::_reduce_scatter_base_"]


def _talk(rank: int, path: str) -> None:
    distributed.init_process_group("gloo", f"file://{path}/store", rank=rank, world_size=2)
    model = sharded()
    heard: dict[str, Any] = {}
    for name, once in (("each", False), ("once", True), ("each again", False)):
        learning = counted(model, once, True)
        heard[f"gradient {name}"] = {n: full(p.grad).clone() for n, p in model.named_parameters()}
        model.zero_grad()
        heard[name] = [learning, counted(model, once, False)]
    torch.save(heard, f"{path}/{rank}.pt")
    distributed.destroy_process_group()


def test_weights_are_gathered_once_and_gradients_summed_once(tmp_path: Path):
    call_in_ranks(_talk, tmp_path, 2)
    heard = torch.load(tmp_path / "0.pt")
    learning, scoring = heard["once"]
    assert learning == (GROUPS, GROUPS)
    assert scoring == (GROUPS, 0)
    # Layers are gathered for the forward and again for the backward pass; the root stays over both.
    learning, scoring = heard["each"]
    assert learning == (PASSES * (2 * LAYERS + 1), PASSES * GROUPS)
    assert scoring == (PASSES * LAYERS + 1, 0)
    assert heard["each again"] == heard["each"]
    for name, gradient in heard["gradient each"].items():
        torch.testing.assert_close(heard["gradient once"][name], gradient, rtol=1e-5, atol=1e-7)
