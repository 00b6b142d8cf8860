"""The hardware in words."""

from types import SimpleNamespace

import pytest
import torch

from ngrpo.utils.hardware import hardware


def test_a_cpu_is_named_with_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    name, _, cores = hardware("auto", 1).rpartition(", ")
    assert name
    assert cores.split()[0].isdigit()


def test_gpus_are_counted_by_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    found = SimpleNamespace(name="NVIDIA H200", total_memory=150e9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: found)
    assert hardware("auto", 4) == "4 x NVIDIA H200 (150 GB)"
    assert "core" in hardware("cpu", 4)
