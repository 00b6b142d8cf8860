"""Replay on a model that FSDP2 shards over two processes, against one process."""

import itertools
from pathlib import Path
from typing import Any

import torch
from forked import call_in_ranks
from made_models import tiny_config, tiny_model
from test_replayed import KINDS, gradients, laid_out, made, positions_of, scored
from torch import Tensor, distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ngrpo.replay.hook import replayed
from ngrpo.replay.records import RecordTensors

CASES = tuple(itertools.product(KINDS, (False, True)))
"""Kinds of models, and whether the embedding is sharded by itself or with the root."""


def log_probs(model: Any, seed: int) -> Tensor:
    """Of the rollouts of a seed."""
    rollouts = made(seed)
    ids, mask = laid_out(rollouts, "both")
    with replayed(model, RecordTensors.of(rollouts, mask)):
        logits = model(input_ids=ids, attention_mask=mask, position_ids=positions_of(mask), use_cache=False).logits
    return scored(logits, ids, mask, rollouts)


def score_in_a_rank(rank: int, folder: str) -> None:
    """Writes a rank's log-probs, and the gradients of the mean over ranks."""
    distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    for kind, own_group in CASES:
        model = tiny_model(tiny_config(kind), "sdpa")
        if own_group:
            fully_shard(model.get_input_embeddings(), mesh=mesh)
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        found = log_probs(model, seed=rank)
        found.sum().backward()
        whole = {name: gradient.full_tensor() for name, gradient in gradients(model).items()}  # type: ignore[attr-defined]
        torch.save((found.detach(), whole), Path(folder) / f"{rank}_{kind}_{own_group}.pt")
    distributed.destroy_process_group()


def test_two_ranks_of_fsdp2_give_what_one_process_gives(tmp_path: Path) -> None:
    call_in_ranks(score_in_a_rank, tmp_path, 2)
    for kind in KINDS:
        model = tiny_model(tiny_config(kind), "sdpa")
        expected = [log_probs(model, seed) for seed in range(2)]
        (sum(part.sum() for part in expected) / 2).backward()
        for rank, own_group in itertools.product(range(2), (False, True)):
            found, whole = torch.load(tmp_path / f"{rank}_{kind}_{own_group}.pt")
            torch.testing.assert_close(found, expected[rank].detach(), atol=1e-5, rtol=1e-5)
            for name, gradient in gradients(model).items():
                assert (whole[name] - gradient).abs().max() <= 1e-5 * gradient.abs().max() + 1e-7, (kind, name)
