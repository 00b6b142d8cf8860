"""TRL's side of the benchmark, with a stand-in for TRL."""

import importlib
import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from places import ROOT


class Trainer:
    """Calls what TRL's trainer calls; an optimiser steps in each step of the training."""

    logged = {"loss": 1.0}

    def __init__(self, model: str, args: Any, train_dataset: Any, reward_funcs: Any, processing_class: Any) -> None:
        assert (Path(model) / "config.json").exists()
        self.steps = args.max_steps
        self.prompts = train_dataset
        self.reward = reward_funcs
        self.callbacks: list[Any] = []
        weight = torch.nn.Parameter(torch.zeros(2))
        weight.grad = torch.ones(2)
        self.optimizer = torch.optim.SGD([weight], lr=0.1)

    def add_callback(self, callback: Any) -> None:
        self.callbacks.append(callback)

    def _generate(self, prompts: list[str]) -> list[str]:
        return [f"{prompt}!" for prompt in prompts]

    def _generate_and_score_completions(self, prompts: list[str]) -> list[float]:
        return self.reward(self._generate(prompts))

    def train(self) -> None:
        for step in range(self.steps):
            for callback in self.callbacks:
                callback.on_step_begin(None, SimpleNamespace(global_step=step), None)
            assert self._generate_and_score_completions(["one", "two"]) == [0.0, 1.0]
            self.optimizer.step()
            for callback in self.callbacks:
                callback.on_step_end(None, SimpleNamespace(global_step=step + 1), None)
                callback.on_log(None, None, None, logs=dict(self.logged))


@pytest.fixture
def run_trl(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    trl, datasets = ModuleType("trl"), ModuleType("datasets")
    trl.GRPOConfig = lambda **settings: SimpleNamespace(**settings)  # type: ignore[attr-defined]
    trl.GRPOTrainer = Trainer  # type: ignore[attr-defined]
    datasets.Dataset = SimpleNamespace(from_list=list)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trl", trl)
    monkeypatch.setitem(sys.modules, "datasets", datasets)
    step_times, step_trl = (importlib.import_module(name) for name in ("step_times", "step_trl"))
    monkeypatch.setattr(step_trl, "OPTIMIZER", step_times.OptimizerSeconds())
    handles: list[Any] = []

    def kept(register: Any) -> Any:
        return lambda hook: handles.append(register(hook))

    for name in ("register_optimizer_step_pre_hook", "register_optimizer_step_post_hook"):
        monkeypatch.setattr(step_times, name, kept(getattr(step_times, name)))
    yield step_trl.run_trl
    for handle in handles:  # of every optimiser of this process
        handle.remove()


def made_arguments(folder: Path) -> Namespace:
    return Namespace(
        work=folder, prompts=2, tokens=8, prompt_tokens=4, warm_up=1, steps=2, engine="torch", engine_memory=0.35
    )


@pytest.mark.parametrize("record", [False, True])
def test_steps_after_the_warm_up_are_timed(
    run_trl: Any, tiny_model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: bool
) -> None:
    kernel_times = importlib.import_module("kernel_times")
    recordings: list[Any] = []

    class Recording:
        def __enter__(self) -> list[Any]:
            recordings.append([kernel_times.Kernel("one", 0, 3 * 10**9)])
            return recordings[-1]

        def __exit__(self, *_: Any) -> None:
            """Ends."""

    monkeypatch.setattr(kernel_times, "recorded_kernels", Recording)
    result = tmp_path / "trl.json"
    after = 3 if record else None
    run_trl(made_arguments(tmp_path), Path(tiny_model_path), ["one", "two"], 8, result, after, False, False)
    made = json.loads(result.read_text())
    assert len(made["steps"]) == 2
    for step in made["steps"]:
        assert 0 < step["generate_s"] < step["step_s"]
        assert 0 < step["optimizer_s"] <= step["update_s"]
    assert len(recordings) == record
    assert made.get("kernel_s") == (3.0 if record else None)


def test_the_exploring_trainer_takes_the_place_of_trls_and_says_how_well_it_replays(
    run_trl: Any, tiny_model_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Exploring(Trainer):
        logged = {"loss": 1.0, "exploration/replay_difference": 2e-6}

        def __init__(self, exploration: Any, engine: Any, **given: Any) -> None:
            super().__init__(**given)
            assert engine is None
            assert not hasattr(given["args"], "generation_kwargs")  # which a trainer that explores refuses
            assert exploration.rate > 0

    plugin = ModuleType("ngrpo.plugins.trl")
    plugin.ExploringGRPOTrainer = Exploring  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ngrpo.plugins.trl", plugin)
    result = tmp_path / "ours.json"
    run_trl(made_arguments(tmp_path), Path(tiny_model_path), ["one", "two"], 8, result, None, False, True)
    made = json.loads(result.read_text())
    assert made["exploration/replay_difference"] == 2e-6
    assert "loss" not in made
