"""Six iterations straight equal three, kill -9, resume, three."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from forked import HELPERS, server, succeed
from places import ROOT
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ngrpo.data.word_problems.generator import problem

NEIGHBOR = ["exploration=neighbor", "exploration.rate=0.5", "exploration.refresh_every=2"]


def overrides_of(run: Path, prompts: Path, *more: str) -> list[str]:
    chosen = [] if any(override.startswith("exploration=") for override in more) else NEIGHBOR
    return [
        *chosen,
        "debug=fast",
        "trainer.iterations=6",
        "callbacks.checkpoint.every=3",
        "callbacks.export=null",
        "reward.workers=1",
        "callbacks.evaluation.every=0",
        f"hydra.run.dir={run}",
        "+callbacks.recorder._target_=prompt_recorder.PromptRecorder",
        f"+callbacks.recorder.path={prompts}",
        *more,
    ]


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, str]:
    return {"NGRPO_CACHE": str(tmp_path / "cache")}


def final_state(run: Path) -> dict:
    return torch.load(run / "checkpoints" / "iteration-6" / "state.ckpt", weights_only=True)


CASES = {
    "grpo": ["algo=grpo"],
    # Prompts drawn beside the batches, and counts that rewards depend on.
    "dapo": ["algo=dapo", "reward_terms=[overlong,count_bonus]", "selection.max_refills=2"],
    # Prefetched rollouts, of weights that no longer exist.
    "ahead": ["algo=grpo", "algo/correction=truncate", "rollout.ahead=1"],
    # Rates that follow the finished iterations, also of prefetched rollouts.
    "annealed": [
        "exploration=neighbor_annealed",
        "exploration.refresh_every=2",
        "exploration.rate_start=0.8",
        "exploration.rate_end=0.2",
        "exploration.schedule_iterations=5",
        "algo=grpo",
        "algo/correction=truncate",
        "rollout.ahead=1",
    ],
    # Supports of prefetched rollouts, which are scored after the kill.
    "truncated": ["exploration=min_p", "algo=grpo", "algo/correction=truncate", "rollout.ahead=1"],
    # A second model with an optimiser of its own, and a learning rate that changes.
    "ppo": [
        "algo=ppo",
        "trainer.schedule._target_=ngrpo.training.optim.lr_schedule.cosine",
        "trainer.schedule.warmup=3",
    ],
    # Loss scales that gradients overflow at in the first steps, so that they change on both sides of the kill.
    "float16": [
        "algo=ppo",
        "trainer.precision=16-mixed",
        "trainer.schedule._target_=ngrpo.training.optim.lr_schedule.cosine",
        "+callbacks.scale._target_=poison.LargeScale",
        "+callbacks.scale.value=68719476736.0",
    ],
    # A learning rate that goes by the generated tokens, whose limit is nearer than that of iterations.
    "tokens": [
        "algo=grpo",
        "trainer.schedule._target_=ngrpo.training.optim.lr_schedule.cosine",
        "trainer.max_generated_tokens=1300",
    ],
    # What parts of the algorithm have learned.
    "adaptive_entropy": [
        "algo=adaptive_entropy",
        "algo.adaptive_entropy.target=9",
        "algo/token_weight=forking",
        "algo/bonus=ucb_con",
    ],
    # Responses that fork off one another.
    "treepo": ["algo=treepo"],
    # Forced tokens and records of distributions, in prefetched rollouts.
    "latr": ["algo=grpo", "algo/correction=truncate", "rollout.ahead=1", "rollout/scheduler=latr"],
    # Quartiles of the mean rewards so far.
    "more_of_hard_prompts": [
        "algo=gfpo",
        "algo/within_group=more_of_hard_prompts",
        "algo.within_group.sizes=[4,3,2,2]",
        "algo.within_group.warmup=4",
    ],
    # What is given to the responses depends on those of iterations before, prefetched ones too.
    "prefix_sampling": [
        "algo=grpo",
        "algo/correction=truncate",
        "rollout.ahead=1",
        "rollout/scheduler=prefix_sampling",
        "rollout.scheduler.rate=3.0",
        "data.instruction=''",
        "data.path=PROBLEMS",
        "data.max_difficulty=2",
        "data.eval_path=demo",
    ],
    # Two sources, one of them from the start again, and problems that come by the pass rates of the run itself.
    "mixture": [
        "data=mixture",
        "data/curriculum=sampled_by_pass_rate",
        "+data.sources.few={path: PROBLEMS, max_difficulty: 2, weight: 2}",
        "+data.sources.hard={path: PROBLEMS, min_difficulty: 3}",
        "data.eval_path=demo",
        "data.instruction=''",
    ],
}


def write_problems(file: Path) -> str:
    made = [problem(key, "train") for key in range(24)]
    file.write_text("\n".join(json.dumps({"problem": p.question, **asdict(p)}) for p in made))
    return str(file)


@pytest.mark.faults
@pytest.mark.parametrize("case", CASES)
def test_resume_after_kill_is_exact(tmp_path: Path, cache: dict[str, str], case: str):
    problems = write_problems(tmp_path / "problems.jsonl")
    chosen = [override.replace("PROBLEMS", problems) for override in CASES[case]]
    straight, broken, resumed = tmp_path / "straight", tmp_path / "broken", tmp_path / "resumed"
    succeed("train.py", *overrides_of(straight, tmp_path / "a.txt", *chosen), path=[HELPERS], environment=cache)

    command = [sys.executable, "scripts/train.py", *overrides_of(broken, tmp_path / "b.txt", *chosen)]
    environment = os.environ | cache | {"PYTHONPATH": f"{ROOT}:{HELPERS}", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    deadline = time.monotonic() + 240
    while not (broken / "checkpoints" / "latest").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (broken / "checkpoints" / "iteration-6").exists()
    resume = overrides_of(resumed, tmp_path / "c.txt", *chosen, f"ckpt={broken}")
    succeed("train.py", *resume, path=[HELPERS], environment=cache)

    before = (tmp_path / "b.txt").read_text().splitlines()[:3]
    after = (tmp_path / "c.txt").read_text().splitlines()
    assert before + after == (tmp_path / "a.txt").read_text().splitlines()
    one, two = final_state(straight), final_state(resumed)
    assert one["state_dict"].keys() == two["state_dict"].keys()
    for name, tensor in one["state_dict"].items():
        assert torch.equal(tensor, two["state_dict"][name]), name
    assert len(one["optimizer_states"]) == (2 if case in ("ppo", "float16") else 1)
    for first, second in zip(one["optimizer_states"], two["optimizer_states"], strict=True):
        assert all(torch.equal(m["exp_avg"], second["state"][i]["exp_avg"]) for i, m in first["state"].items())
        assert first["param_groups"] == second["param_groups"]
    assert any(name.startswith("critic.") for name in one["state_dict"]) == (case in ("ppo", "float16"))
    assert one.get("algorithm") == two.get("algorithm")
    assert ("algorithm" in one) == (case in ("adaptive_entropy", "more_of_hard_prompts"))
    assert one.get("loss_scales") == two.get("loss_scales")
    assert ("loss_scales" in one) == (case == "float16")
    tables = [state["callbacks"]["RolloutCallback"]["tables"] for state in (one, two)]
    assert [list(each) for each in tables] == [[] if case == "truncated" else ["neighbors"]] * 2
    assert all(torch.equal(table, tables[1][name]) for name, table in tables[0].items())
    terms = [state["callbacks"]["RolloutCallback"]["reward_terms"] for state in (one, two)]
    assert terms[0] == terms[1]
    given, depth = (scalars(resumed, tag) for tag in ("rollout/given_mean", "rollout/branch_depth"))
    assert (max(given) > 0, max(depth) > 0) == (case == "prefix_sampling", case in ("treepo", "latr"))
    assert given == scalars(straight, "rollout/given_mean")[3:]
    if case == "annealed":
        assert scalars(resumed, "exploration/rate") == scalars(straight, "exploration/rate")[3:]
    (stream,), (other,) = (s["loops"]["fit_loop"]["state_dict"]["combined_loader"] for s in (one, two))
    assert stream == other
    again = any(source["epoch"] for source in stream["sources"])
    assert again == (case in ("mixture", "prefix_sampling"))
    assert (len(stream["curriculum"].get("rates", [])) > 9) == (case == "mixture")
    drawn = sum(source["drawn"] for source in stream["sources"])
    assert (drawn > 6 * 4, bool(terms[0])) == (case == "dapo", case == "dapo")


def test_rates_go_on_where_they_were_though_the_run_gets_longer(tmp_path: Path, cache: dict[str, str]):
    """The schedule's length is its own: three iterations that become six have the rates of six at once."""
    stopped, resumed = tmp_path / "stopped", tmp_path / "resumed"
    chosen = [*CASES["annealed"], "rollout.ahead=0", "callbacks.evaluation=null"]
    short = [*overrides_of(stopped, tmp_path / "b.txt", *chosen), "trainer.iterations=3"]
    succeed("train.py", *short, path=[HELPERS], environment=cache)
    more = overrides_of(resumed, tmp_path / "c.txt", *chosen, f"ckpt={stopped}")
    succeed("train.py", *more, path=[HELPERS], environment=cache)

    shares = [(1 + math.cos(math.pi * min(i / 5, 1))) / 2 for i in range(6)]
    rates = scalars(stopped, "exploration/rate") + scalars(resumed, "exploration/rate")
    assert rates == pytest.approx([0.2 + 0.6 * share for share in shares], abs=1e-6)
    sizes = scalars(stopped, "exploration/k") + scalars(resumed, "exploration/k")
    assert sizes == [math.floor(2 + 3 * share + 0.5) for share in shares]


def scalars(run: Path, tag: str) -> list[float]:
    """The values of a tag, one an iteration."""
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    return [event.value for event in events.Scalars(tag)]


def test_resuming_a_finished_run_says_what_to_raise(tmp_path: Path, cache: dict[str, str]):
    run = tmp_path / "run"
    quick = (
        "trainer.iterations=1",
        "callbacks.checkpoint.every=1",
        "callbacks.evaluation=null",
        "callbacks.summary=null",
    )
    succeed("train.py", *overrides_of(run, tmp_path / "a.txt", *quick), path=[HELPERS], environment=cache)
    again = overrides_of(tmp_path / "again", tmp_path / "b.txt", *quick, f"ckpt={run}")
    done = server().run(["train.py", *again], ROOT, cache, path=[HELPERS], errors_apart=True)
    assert done.status == 1
    assert "trainer.iterations=1 is already reached by ckpt=" in done.errors
    assert "Traceback" not in done.errors
