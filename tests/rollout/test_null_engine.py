"""The engine of ranks that get their rollouts from another."""

import pytest
import torch

from ngrpo.distributed.collectives import Ranks
from ngrpo.exploration.token import TokenSampling
from ngrpo.rollout.null_engine import NullEngine
from ngrpo.rollout.recovery import EngineFailure
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.rollout.worker import RolloutWorker


def test_it_takes_part_in_the_transfer_of_weights_and_makes_nothing(
    tiny_source, monkeypatch: pytest.MonkeyPatch, requests, sampling
):
    class Engine:
        def start(self, device: torch.device) -> None:
            raise AssertionError("a second engine")

    worker = RolloutWorker(
        Engine(), tiny_source.tokenizer(), None, TokenSampling(), RolloutSettings(group_size=2), (3,), seed=0
    )
    monkeypatch.setattr("ngrpo.rollout.served_engine.ranks", lambda: Ranks(0, 1, tensor_rank=1, tensor_size=2))
    worker.start(torch.device("cpu"))
    assert isinstance(worker.engine, NullEngine)
    tensors = iter([("one", torch.ones(1)), ("two", torch.ones(1))])
    worker.sync_weights(tensors, refresh=True)
    assert list(tensors) == []
    with pytest.raises(RuntimeError, match="first rank"):
        worker.engine.generate(requests, sampling, None)
    with pytest.raises(EngineFailure, match="first rank"):
        _ = worker.bound
