"""The benchmarks run, smaller, on a CPU."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import succeed
from places import ROOT

from ngrpo.training.memory_budget import MemoryBudget


def run(script: str, *words: str, processes: int = 1) -> str:
    return succeed(script, "--shape", "tiny", *words, ranks=processes if processes > 1 else 0)


def update(tmp_path: Path, *words: str, processes: int = 1) -> dict[str, Any]:
    words = ("--compile", "off", "--iterations", "1", "--json", str(tmp_path / "update.json"), *words)
    run("bench_update.py", *words, processes=processes)
    return json.loads((tmp_path / "update.json").read_text())


def test_update(tmp_path: Path):
    made = update(tmp_path, "--sequences", "8", "--shortest", "20", "--longest", "60", "--padded")
    assert [result["name"] for result in made["results"]] == [
        "checkpointing selective", "checkpointing full", "stock transformers, padded, no reference",
    ]  # fmt: skip
    for result in made["results"]:
        assert result["tokens"] == sum(made["runs"][0]["lengths"])
        assert result["tokens_per_s"] == pytest.approx(result["tokens"] / result["update_s"])
        assert 0 < result["update_s"] <= result["seconds"]


def test_two_processes_do_the_work_of_one(tmp_path: Path):
    words = ("--sequences", "32", "--shortest", "20", "--longest", "60", "--checkpointing", "full")
    words = (*words, "--precision", "32-true")
    one, two = update(tmp_path, *words), update(tmp_path, *words, processes=2)
    assert (one["ranks"], two["ranks"]) == (1, 2)
    (one,), (two,) = one["results"], two["results"]
    assert two["tokens"] == one["tokens"]
    assert one["grad_norm"] > 0
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-5)
    assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-5)


def test_memory_of_one_microbatch(tmp_path: Path):
    made = update(tmp_path, "--shortest", "20", "--longest", "50", "--checkpointing", "full", "--memory", "200", "400")
    assert [result["tokens"] for result in made["results"]] == [200, 400]
    assert [run["microbatch_tokens"] for run in made["runs"]] == [200, 400]


def test_a_microbatch_that_does_not_fit_is_not_measured_as_a_smaller_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    bench = importlib.import_module("bench_update")

    def half(budget: MemoryBudget, work: Callable[[], Any], *_: Any) -> Any:
        budget.tokens = 64
        return work()

    case = bench.Run("tiny", (20,) * 8, 128, "full", False, "32-true", True, 1)
    assert bench.measured(case, 1.0).tokens == 160
    monkeypatch.setattr(MemoryBudget, "fit", half)
    with pytest.raises(torch.OutOfMemoryError):
        bench.measured(case, 1.0)


def test_a_whole_step(tmp_path: Path):
    words = ["--work", str(tmp_path), "--engine", "torch", "--tokens", "8", "--steps", "1", "--warm-up", "1"]
    run("bench_step.py", *words, "--no-compile", "--modes", "ours", "--json", str(tmp_path / "step.json"))
    (ours,) = json.loads((tmp_path / "step.json").read_text())["results"].values()
    phases = ("generate_s", "reward_s", "score_s", "update_s", "sync_s")
    assert 0 < sum(ours[name] for name in phases) <= ours["step_s"]


def test_whole_steps_of_several_processes(tmp_path: Path):
    words = ["--work", str(tmp_path), "--engine", "torch", "--tokens", "8", "--prompts", "4", "--steps", "2"]
    words += ["--warm-up", "1", "--no-compile", "--modes", "cards", "--devices", "1", "2"]
    run("bench_step.py", *words, "--json", str(tmp_path / "cards.json"))
    one, weak, strong = json.loads((tmp_path / "cards.json").read_text())["results"].values()
    assert (one["cards"], weak["cards"], strong["cards"]) == (1, 2, 2)
    assert weak["generated_tokens"] == 2 * one["generated_tokens"] == 2 * 4 * 8 * 8
    assert weak["tokens"] > one["tokens"] > one["generated_tokens"]
    assert weak["efficiency"] == pytest.approx(weak["tokens_per_s"] / one["tokens_per_s"] / 2)
    assert (tmp_path / "cards.md").read_text().count("| cards ") == 3
    assert len({step["rollouts"] for step in one["steps"]}) == 2
    for alone, together in zip(one["steps"], strong["steps"], strict=True):
        assert together["rollouts"] == alone["rollouts"]
        assert together["policy/grad_norm"] == pytest.approx(alone["policy/grad_norm"], rel=1e-5)
        assert together["policy/loss"] == pytest.approx(alone["policy/loss"], abs=1e-6)


def test_plans_are_compared_with_measurements(tmp_path: Path):
    run("bench_plan.py", "--tokens", "4096", "--cases", "1", "--json", str(tmp_path / "plan.json"))
    made = json.loads((tmp_path / "plan.json").read_text())
    (case,) = made["results"]
    assert case["case"] == "checkpointing full"
    assert case["planned"] > 0
    assert made["left_out"] == []
