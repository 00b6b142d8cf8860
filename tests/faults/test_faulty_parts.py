"""Rewards that hang, die or raise, numbers that are not finite and damaged checkpoints, in the real script."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from faulty_run import ROOT, ended, environment, finish, logged, start, wait_until
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

pytestmark = pytest.mark.faults


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The answer-checking processes of a run."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            line = (status.parent / "cmdline").read_text()
        except (OSError, ValueError):
            continue
        if parent == process.pid and "ngrpo.rewards.isolation.judge" in line:
            found.append(int(status.parent.name))
    return found


def scalar(run: Path, tag: str) -> list[float]:
    return [event.value for event in EventAccumulator(str(run / "tensorboard")).Reload().Scalars(tag)]


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=["hanging", "dying"])
def test_a_reward_worker_that_hangs_or_dies_is_replaced(tmp_path: Path, number: signal.Signals) -> None:
    run = tmp_path / "run"
    process = start(run, "reward.timeout_s=1", "reward.workers=2")
    wait_until(lambda: "iteration 1/12" in logged(run), process, run)
    struck = workers_of(process)
    assert struck
    for worker in struck:
        os.kill(worker, number)
    wait_until(lambda: "iteration 11/12" in logged(run), process, run)
    assert not set(struck) & set(workers_of(process))
    status, said = ended(process, run)
    assert status == 0, said
    if number is signal.SIGSTOP:
        assert sum(scalar(run, "reward/timeout")) > 0  # counted, as failed
    assert json.loads((run / "summary.json").read_text())["iterations"] == 12


def test_a_reward_that_raises_names_the_sample(tmp_path: Path) -> None:
    own = ("reward_terms=[custom]", "reward_terms.custom.term._target_=poison.Raising")
    status, said = finish(tmp_path / "run", *own, "+reward_terms.custom.term.problem=5")
    assert status == 1
    last = said.splitlines()[-1]
    assert "Traceback" in said
    assert 'raise ValueError("no idea what to say of this")' in said
    assert last.startswith("error: reward_terms.custom raised ValueError('no idea what to say of this') in poison.py:")
    assert " on response 4, to problem 5: '" in last
    assert last.endswith("; fix it and resume with ckpt=latest.")


def test_a_nan_gradient_is_skipped_kept_and_looked_at_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    poison = ("+callbacks.poison._target_=poison.PoisonGradient", "+callbacks.poison.iterations=[1]")
    status, said = finish(run, "trainer.iterations=3", "trainer.max_bad_steps=9", *poison)
    assert status == 0, said
    assert scalar(run, "policy/skipped_steps") == [0, 4, 0]
    files = sorted((run / "bad_steps").iterdir())
    assert [file.name for file in files] == [f"iteration-2-step-{step}-rank-0.pt" for step in (1, 2, 3, 4)]
    replayed = subprocess.run(
        [sys.executable, "scripts/replay_step.py", str(files[0]), "--checkpoint", str(run)],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert replayed.returncode == 0, replayed.stderr
    assert "iteration 2, optimiser step 1 was skipped: policy/grad_norm nan" in replayed.stdout
    assert "0 of 4 samples are not finite with these weights" in replayed.stdout


def test_nothing_but_bad_steps_ends_the_run_and_names_the_last_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    poison = ("+callbacks.poison._target_=poison.PoisonGradient", "+callbacks.poison.iterations=[2,3,4,5]")
    status, said = finish(run, "trainer.iterations=9", "trainer.max_bad_steps=6", *poison)
    assert status == 1
    last = said.splitlines()[-1]
    assert last.startswith("error: trainer.max_bad_steps=6 optimiser steps in a row were skipped, the last for its ")
    assert last.endswith(f"; the last checkpoint is of iteration 3: resume with ckpt={run}.")


def hanging(run: Path, *calls: int) -> tuple[str, ...]:
    return (
        "reward_terms=[custom]", "reward_terms.custom.term._target_=poison.Hanging", "custom_reward_timeout_s=1",
        f"+reward_terms.custom.term.calls={list(calls)}", f"+reward_terms.custom.term.marker={run}.calls",
    )  # fmt: skip


def test_a_reward_term_that_hangs_is_ended_and_left_out(tmp_path: Path) -> None:
    run = tmp_path / "run"
    # Call 0, of made-up responses, is before the first iteration.
    status, said = finish(run, "trainer.iterations=4", *hanging(run, 2, 3))
    assert status == 0, said
    assert scalar(run, "reward/left_out") == [0, 1, 1, 0]
    line = "reward_terms.custom took longer than custom_reward_timeout_s=1: the rewards of 16 responses are excluded"
    assert said.count(line) == 2
    assert json.loads((run / "summary.json").read_text())["iterations"] == 4


def test_a_reward_term_that_always_hangs_ends_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    status, said = finish(run, *hanging(run, 1, 2, 3))
    assert (status, said.splitlines()[-1]) == (
        1,
        "error: reward_terms.custom took longer than custom_reward_timeout_s=1, for the 3rd time in a row; fix it, or "
        "raise custom_reward_timeout_s, and resume with ckpt=latest.",
    )


SPOILED = (
    "reward_terms=[custom]",
    "reward_terms.custom.term._target_=poison.SpoiledReward",
    "+reward_terms.custom.term.calls=[1,2]",
)


def test_an_infinite_reward_skips_one_step_and_is_told(tmp_path: Path) -> None:
    run = tmp_path / "run"
    status, said = finish(run, "trainer.iterations=4", *SPOILED, "+reward_terms.custom.term.value=inf")
    assert status == 0, said
    assert scalar(run, "policy/skipped_steps") == [0, 1, 1, 0]
    assert scalar(run, "reward/left_out") == [0, 1 / 16, 1 / 16, 0]
    assert "the reward on response 1, to problem 4" in said
    assert "is infinite in float32 (reward_terms.custom=inf)" in said
    assert all(value == value for value in scalar(run, "policy/loss"))


def test_a_nan_reward_is_left_out_counted_and_told_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    status, said = finish(run, "trainer.iterations=4", *SPOILED, "+reward_terms.custom.term.value=nan")
    assert status == 0, said
    assert scalar(run, "policy/skipped_steps") == [0, 0, 0, 0]
    assert scalar(run, "reward/left_out") == [0, 1 / 16, 1 / 16, 0]
    assert "reward_terms.custom returned nan on response 1, to problem 4" in said
    assert said.count("returned nan") == 1
    assert all(value == value for value in scalar(run, "policy/loss"))


def test_damaged_checkpoints_are_refused_and_the_named_one_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert finish(run, "trainer.iterations=4", "callbacks.checkpoint.keep=4")[0] == 0
    folder = run / "checkpoints"
    state = folder / "iteration-4" / "state.ckpt"
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    truncated = folder / "iteration-3" / "state.ckpt"
    truncated.write_bytes(truncated.read_bytes()[:-100])
    (folder / "iteration-2" / "state.ckpt").unlink()
    status, said = finish(run, "trainer.iterations=5", "ckpt=latest")
    assert (status, said.splitlines()[-1]) == (
        1,
        f"error: ckpt={folder}/iteration-4 is damaged (the content of state.ckpt has changed); the last good one before"
        f" it is ckpt='{folder}/iteration-1'.",
    )
    again = tmp_path / "again"
    assert finish(again, "trainer.iterations=5", f"ckpt='{folder}/iteration-1'")[0] == 0
