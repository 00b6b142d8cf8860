"""Two processes on the CPU, the first time launched as a user launches them, against one."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import HELPERS, succeed
from places import ROOT
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from ngrpo.checkpoint.folders import STATE
from ngrpo.data.word_problems.generator import problem
from ngrpo.modeling.loading import ModelSource
from ngrpo.report.run_store import RunStore


def overrides_of(folder: Path, processes: int, *more: str) -> list[str]:
    return [
        "exploration=neighbor", "trainer.accelerator=cpu", f"trainer.devices={processes}", "debug=fast",
        "algo.optimizer_steps=2", "callbacks.evaluation.every=0", f"hydra.run.dir={folder}", *more,
    ]  # fmt: skip


def launched(folder: Path, processes: int, *more: str) -> Path:
    """Runs the training script in ``folder`` as a user does, the other processes started by it; returns the folder."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "scripts/train.py", *overrides_of(folder, processes, *more)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def train(folder: Path, processes: int, *more: str) -> Path:
    """Runs the training script in ``folder`` as forks of a process with everything imported; returns the folder."""
    ranks = processes if processes > 1 else 0
    succeed("train.py", *overrides_of(folder, processes, "reward.workers=1", *more), path=[HELPERS], ranks=ranks)
    return folder


def summary(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "summary.json").read_text())


def first_iteration(folder: Path) -> dict[str, float]:
    """What was logged of the first iteration's rollouts, times and memory left out."""
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    values = {tag: events.Scalars(tag)[0].value for tag in events.Tags()["scalars"]}
    groups = ("train/", "rollout/", "reward/", "exploration/")
    return {t: v for t, v in values.items() if t.startswith(groups) and "mismatch" not in t and "tokens_per_s" not in t}


def resumed_from(folder: Path) -> str:
    return f"ckpt='{folder}/checkpoints/iteration-1'"  # quoted: Hydra's grammar has a meaning for =


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compared = "+callbacks.model_check._target_=ngrpo.callbacks.model_check.ModelCheck"
    return launched(tmp_path_factory.mktemp("two"), 2, "algo=gspo", compared)


def test_sharded_models_compute_the_models_own_logits(two: Path):
    assert "trainer and engine compute the model's own logits" in (two / "train.log").read_text()


def test_rollouts_and_evaluation_are_those_of_one_process(two: Path, tmp_path: Path):
    one = train(tmp_path, 1, "algo=gspo", "trainer.iterations=1", "callbacks.export=null", "callbacks.checkpoint=null")
    assert summary(one)["eval"]["before"] == summary(two)["eval"]["before"]
    expected = first_iteration(one)
    assert expected["rollout/length_mean"] * 16 == pytest.approx(summary(one)["tokens_generated"])
    assert len(expected) > 15
    assert first_iteration(two) == pytest.approx(expected, abs=1e-5)
    (first, second), (alone,) = RunStore(two).iterations(), RunStore(one).iterations()
    assert sorted(first.problems, key=str) == sorted(alone.problems, key=str)
    assert len(second.problems) == len(first.problems)
    stored = RunStore(two).rollouts(0)  # some of them were trained on by the other process
    assert stored
    assert all(0 < len(rollout.entropies) == len(rollout.tokens) for rollout in stored)
    assert RunStore(two).evaluations()[0] == RunStore(one).evaluations()[0]


def test_two_processes_resume_what_two_processes_saved(two: Path, tmp_path: Path):
    again = train(
        tmp_path, 2, "algo=gspo", f"ckpt='{two}/checkpoints/iteration-1'"
    )  # quoted: Hydra's grammar has a meaning for =
    straight, resumed = summary(two), summary(again)
    assert straight["iterations"] == resumed["iterations"] == 2
    assert straight["tokens_generated"] == resumed["tokens_generated"]
    assert straight["eval"] == resumed["eval"]
    assert RunStore(two).evaluations() == RunStore(again).evaluations()
    met, met_again = ([r.problems for r in RunStore(folder).iterations()] for folder in (two, again))
    assert met == met_again
    assert len(met) == 2
    trained, continued = (load_file(folder / "model" / "model.safetensors") for folder in (two, again))
    assert all(torch.equal(tensor, continued[name]) for name, tensor in trained.items())
    assert {path.name for path in (two / "checkpoints").iterdir()} == {"iteration-1", "iteration-2", "latest"}


TREES = ("algo=treepo", "trainer.iterations=1", "callbacks.export=null", "callbacks.checkpoint=null")


def test_trees_are_those_of_one_process_and_are_learned_from_alike(tmp_path: Path):
    """Also with what they have in common counted once, where the two train on different responses of a tree."""
    for shared in ("each", "once"):
        folders = [tmp_path / f"{shared}{ranks}" for ranks in (1, 2)]
        for ranks, folder in enumerate(folders, start=1):
            train(folder, ranks, *TREES, f"algo.shared_tokens={shared}")
        one, two = (first_iteration(folder) for folder in folders)
        assert one["rollout/branch_depth"] > 0.5
        assert two == pytest.approx(one, abs=1e-5)
        found = [EventAccumulator(str(folder / "tensorboard")).Reload() for folder in folders]
        for tag in ("policy/loss", "policy/grad_norm", "policy/entropy", "policy/ratio"):
            values = [events.Scalars(tag)[0].value for events in found]
            assert values[0] == pytest.approx(values[1], rel=1e-4, abs=1e-6)


def test_both_learn_what_to_give_from_the_groups_of_both(tmp_path: Path):
    """Problems that come again on the other rank, and weights that stay as they are."""
    rows = [problem(key, "train") for key in range(6)]
    file = tmp_path / "problems.jsonl"
    file.write_text("\n".join(json.dumps({"problem": row.question, **asdict(row)}) for row in rows))
    chosen = (
        "algo=grpo", "rollout/scheduler=prefix_sampling", "rollout.scheduler.rate=3.0", f"data.path={file}",
        "data.eval_path=demo", "data.instruction=''", "trainer.optimizer.lr=0.0", "trainer.iterations=4",
        "callbacks.export=null", "callbacks.checkpoint=null",
    )  # fmt: skip
    found = []
    for ranks in (1, 2):
        train(tmp_path / str(ranks), ranks, *chosen)
        events = EventAccumulator(str(tmp_path / str(ranks) / "tensorboard")).Reload()
        tags = ("rollout/given_mean", "rollout/length_mean", "train/reward")
        found.append([[event.value for event in events.Scalars(tag)] for tag in tags])
    assert max(found[0][0]) > 0
    for one, two in zip(*found, strict=True):
        assert two == pytest.approx(one, abs=1e-5)


def test_both_judge_prompts_by_the_mean_rewards_of_both(tmp_path: Path):
    """From the first iteration on, and with weights that stay as they are."""
    chosen = (
        "algo=gfpo", "algo/within_group=more_of_hard_prompts", "algo.within_group.sizes=[4,3,2,2]",
        "algo.within_group.warmup=1", "trainer.optimizer.lr=0.0", "trainer.iterations=3", "callbacks.export=null",
        "callbacks.checkpoint=null",
    )  # fmt: skip
    found = []
    for ranks in (1, 2):
        train(tmp_path / str(ranks), ranks, *chosen)
        events = EventAccumulator(str(tmp_path / str(ranks) / "tensorboard")).Reload()
        tags = ("policy/loss", "policy/grad_norm", "policy/entropy")
        found.append([[event.value for event in events.Scalars(tag)] for tag in tags])
    for one, two in zip(*found, strict=True):
        assert two == pytest.approx(one, rel=1e-4, abs=1e-6)


DYNAMIC = (
    "algo=dapo", "selection.keep._target_=keep_but_0_and_2.keep_but_0_and_2", "reward_terms=[overlong,count_bonus]",
    "+callbacks.recorder._target_=prompt_recorder.PromptRecorder",
)  # fmt: skip


def recorded(folder: Path) -> list[str]:
    return sorted((folder / "prompts.txt").read_text().splitlines())


def test_a_rank_with_dead_groups_only_stays_with_the_other(tmp_path: Path):
    """Problems 0 and 2, rank 0's of the first batch, are not kept: 4 and 5 take their places, on one process too."""
    folders = {ranks: tmp_path / str(ranks) for ranks in (1, 2)}
    for ranks, folder in folders.items():
        train(folder, ranks, *DYNAMIC, f"+callbacks.recorder.path={folder}/prompts.txt")
    assert recorded(folders[1]) == ["0 [4, 1, 5, 3]", "1 [6, 7, 8, 9]"]
    assert recorded(folders[2]) == ["0 [1, 3]", "0 [4, 5]", "1 [6, 8]", "1 [7, 9]"]
    assert first_iteration(folders[2]) == pytest.approx(first_iteration(folders[1]), abs=1e-5)
    again = tmp_path / "again"
    train(
        again,
        2,
        *DYNAMIC,
        f"+callbacks.recorder.path={again}/prompts.txt",
        f"ckpt='{folders[2]}/checkpoints/iteration-1'",
    )
    assert recorded(again) == recorded(folders[2])[2:]
    assert summary(again)["tokens_generated"] == summary(folders[2])["tokens_generated"]
    trained, continued = (load_file(folder / "model" / "model.safetensors") for folder in (folders[2], again))
    assert all(torch.equal(tensor, continued[name]) for name, tensor in trained.items())


def test_the_critic_is_sharded_and_resumes(tmp_path: Path):
    folders = tmp_path / "straight", tmp_path / "again"
    train(folders[0], 2, "algo=ppo", "callbacks.export=null")
    train(folders[1], 2, "algo=ppo", "callbacks.export=null", resumed_from(folders[0]))
    states = []
    for folder in folders:
        whole = folder / "whole.ckpt"
        dcp_to_torch_save(folder / "checkpoints" / "iteration-2" / STATE, whole)
        states.append(torch.load(whole, weights_only=True))
    weights, resumed = (state["state_dict"] for state in states)
    assert weights.keys() == resumed.keys()
    assert {"critic.head.weight", "policy.lm.model.norm.weight"} <= weights.keys()
    assert float(weights["critic.head.weight"].abs().max()) > 0
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in weights.items())
    assert {"optimizer_0", "optimizer_1"} <= states[0].keys()


def test_processes_leave_out_the_same_steps_for_the_loss_scale(tmp_path: Path) -> None:
    """Gradients overflow in the first steps; then training goes on as in one process, but for rounding."""
    words = ["trainer.precision=16-mixed", "trainer.iterations=4", "+callbacks.scale._target_=poison.LargeScale"]
    run = train(tmp_path, 2, *words, f"+callbacks.scale.value={2.0**32}", "callbacks.evaluation=null")
    logged = [one.metrics for one in RunStore(run).iterations()]
    overflowed = [one["policy/overflowed_steps"] for one in logged]
    assert 1 < sum(overflowed) < 8
    assert logged[-1]["policy/loss_scale"] == 2.0 ** (32 - sum(overflowed))
    assert [one["policy/skipped_steps"] for one in logged] == [0] * 4
    changed = load_file(run / "model" / "model.safetensors")
    start = ModelSource().load().state_dict()
    assert any(not torch.equal(weight, start[name]) for name, weight in changed.items())
