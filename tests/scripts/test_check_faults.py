"""The script that disturbs several processes, as it is run on machines with GPUs."""

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from forked import succeed
from places import ROOT


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("check_faults")


def test_states_differ_by_their_largest_difference(script: ModuleType):
    one = {"state_dict": {"a": torch.tensor([1.0, 2.0])}, "optimizer_0": [{"step": torch.tensor(3)}]}
    other = {"state_dict": {"a": torch.tensor([1.0, 2.5])}, "optimizer_0": [{"step": torch.tensor(3)}]}
    assert script.difference(one, one) == 0
    assert script.difference(one, other) == 0.5
    assert script.difference(one, None) is None


def test_what_passes(script: ModuleType):
    right = {"right_status": True, "over_s": 5.0, "left": 0, "resumed": 0, "difference": 0.0}
    assert script.passed(script.Outcome("killed", "torch", **right), 60)
    for wrong in ({"right_status": False}, {"over_s": 61.0}, {"left": 1}, {"resumed": 1}, {"difference": 1e-9}):
        assert not script.passed(script.Outcome("killed", "torch", **right | wrong), 60)
    assert not script.passed(script.Outcome("killed", "torch", **right | {"difference": None}), 60)


@pytest.mark.faults
def test_two_processes_end_and_resume(tmp_path: Path):
    words = ("--work", str(tmp_path / "runs"), "--accelerator", "cpu", "--engines", "torch", "--at-a-time", "2")
    named = ("second process killed", "no memory on the second", "SIGTERM")
    succeed("check_faults.py", *words, "--json", str(tmp_path / "faults.json"), "--cases", *named)
    cases = json.loads((tmp_path / "faults.json").read_text())["cases"]
    assert [case["name"] for case in cases] == ["undisturbed", *named]
    assert all(case["passed"] for case in cases)
