"""Every global generator goes on where it stood when the checkpoint was made."""

import io
import random
from typing import Any

import numpy as np
import pytest
import torch
from fake_run import batch, trainer

from ngrpo.callbacks.random_state import RandomState


def drawn() -> list[Any]:
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), float(torch.rand(()))]


def test_states_return_at_the_first_iteration() -> None:
    drawn()  # a second Gaussian number is waiting in Python's and NumPy's generators
    file = io.BytesIO()
    torch.save(RandomState().state_dict(), file)
    expected = drawn()
    file.seek(0)
    resumed = RandomState()
    resumed.load_state_dict(torch.load(file, weights_only=True))
    drawn()  # what starting the engine draws
    resumed.on_train_batch_start(trainer(), None, batch(3), 0)
    assert drawn() == expected
    before = drawn()
    resumed.on_train_batch_start(trainer(), None, batch(4), 1)
    assert drawn() != before  # once only


def test_each_rank_has_its_own() -> None:
    torch.manual_seed(1)
    first = RandomState().state_dict()["ranks"][0]
    torch.manual_seed(2)
    second = RandomState().state_dict()["ranks"][0]
    expected = torch.rand(3)
    resumed = RandomState()
    resumed.load_state_dict({"ranks": [first, second]})
    made = trainer()
    made.global_rank = 1
    resumed.on_train_batch_start(made, None, batch(0), 0)
    assert torch.equal(torch.rand(3), expected)


def test_a_machine_may_have_fewer_gpus_than_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = RandomState().state_dict()["ranks"][0] | {"cuda": [torch.zeros(1), torch.ones(1)]}
    restored: list[tuple[float, int]] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "default_generators", ("of the one GPU",))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, number: restored.append((float(state), number)))
    resumed = RandomState()
    resumed.load_state_dict({"ranks": [saved]})
    resumed.on_train_batch_start(trainer(), None, batch(0), 0)
    assert restored == [(0.0, 0)]


def test_a_run_on_a_cpu_leaves_gpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: pytest.fail("it would start CUDA"))
    assert RandomState().state_dict()["ranks"][0]["cuda"] == []
