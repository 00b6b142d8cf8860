"""Exact log-probs of a trainer whose weights are sharded over two ranks."""

from pathlib import Path
from typing import Any

import torch
from forked import call_in_ranks
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh

from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.exact.model import make_exact
from ngrpo.modeling.layers import prepare_layers
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.sharding import full, shard
from ngrpo.rollout.torch_engine.engine import TorchEngine
from ngrpo.types.rollouts import Request, Rollout, Sampling

STRATEGY = NeighborMixing(rate=0.4, end_token=None)
SAMPLING = Sampling(temperature=0.7, max_new_tokens=16, stop_ids=(3,))


def rollouts_of(source: ModelSource) -> list[Rollout]:
    engine = TorchEngine(source, exact=True)
    engine.start(torch.device("cpu"))
    table = engine.embedding()
    requests = [Request(tuple(range(6, 10 + number)), number) for number in range(6)]
    return engine.generate(requests, SAMPLING, bind(STRATEGY, table, Vocabulary(len(table), frozenset({0, 1, 2}), {})))


def policy_of(source: ModelSource) -> ScoringModel:
    lm = source.load()
    make_exact(lm)
    prepare_layers(lm.base_model.layers, "full", compiled=False)
    return ScoringModel(lm)


def _score(rank: int, path: str) -> None:
    distributed.init_process_group("gloo", f"file://{path}/store", rank=rank, world_size=2)
    source = ModelSource(Path(path, "model").read_text())
    rollouts = rollouts_of(source)[rank::2]
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("data_parallel", "tensor_parallel"))
    policy = shard(policy_of(source), mesh, mixed_in=None)
    log_probs = policy(pack(rollouts), SAMPLING.temperature, STRATEGY).log_prob
    log_probs.sum().backward()
    made: dict[str, Any] = {
        "log_probs": log_probs.detach(),
        "given": torch.cat([rollout.log_probs for rollout in rollouts]),
        "gradients": {name: full(parameter.grad) for name, parameter in policy.named_parameters()},
    }
    torch.save(made, f"{path}/{rank}.pt")
    distributed.destroy_process_group()


def test_sharded_weights_change_no_log_prob(tiny_source: ModelSource, tmp_path: Path) -> None:
    (tmp_path / "model").write_text(tiny_source.path)
    call_in_ranks(_score, tmp_path, 2)
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for one in found:
        assert torch.equal(one["log_probs"], one["given"])
    whole = policy_of(tiny_source)
    whole(pack(rollouts_of(tiny_source)), SAMPLING.temperature, STRATEGY).log_prob.sum().backward()
    for name, parameter in whole.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(2 * found[0]["gradients"][name], parameter.grad, atol=1e-4, rtol=1e-4)
