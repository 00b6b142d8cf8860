"""The GPU that an engine's process sees."""

import os

import pytest
import torch

from ngrpo.rollout.vllm.device import visible, visible_to_children


@pytest.mark.parametrize(
    ("before", "index", "seen"), [(None, 0, "0"), (None, 3, "3"), ("4,5,6", 1, "5"), ("GPU-a,GPU-b", 1, "GPU-b")]
)
def test_a_child_sees_the_trainers_gpu(before, index, seen):
    assert visible(before, index) == seen


@pytest.mark.parametrize("before", [None, "2,3"])
def test_the_trainers_own_view_comes_back(monkeypatch, before):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if before is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    with visible_to_children(torch.device("cuda", 1)):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ("1" if before is None else "3")
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before


def test_a_cpu_changes_nothing(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with visible_to_children(torch.device("cpu")):
        assert "CUDA_VISIBLE_DEVICES" not in os.environ
