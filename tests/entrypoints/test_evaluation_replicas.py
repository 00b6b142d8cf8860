"""Several replicas of the model: their answers are those of one, and a replica that fails ends the evaluation."""

import multiprocessing
import os
import signal
import time
from collections import Counter
from pathlib import Path
from threading import Thread

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from places import ROOT

from ngrpo.config.check import checked
from ngrpo.config.schema import EvaluateConfig, register
from ngrpo.entrypoints.evaluate import evaluate
from ngrpo.entrypoints.evaluation_replicas import answer_on_replicas, replica_count, shares
from ngrpo.errors import RunError, SettingError
from ngrpo.evaluation.answer_store import AnswerStore

SMALL = ["n=4", "benchmark.demo.problems=5", "problems_at_once=2", "rollout.max_new_tokens=32", "accelerator=cpu"]


def composed(out: Path, *overrides: str) -> DictConfig:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        return compose("evaluate", overrides=[*SMALL, f"out={out}", *overrides])


def run(out: Path, *overrides: str) -> Path:
    evaluate(composed(out, *overrides), out)
    return out


def rows(out: Path) -> list[dict]:
    return AnswerStore(out / "demo").table().to_pylist()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("replicas") / "alone")


def test_two_replicas_give_the_answers_of_one(alone: Path, tmp_path: Path) -> None:
    two = run(tmp_path / "two", "devices=2")
    assert rows(two) == rows(alone)
    assert (two / "evaluation.json").read_bytes() == (alone / "evaluation.json").read_bytes()
    assert len(list((two / "demo/answers").iterdir())) == 3  # two batches of one replica, one of the other


def test_what_one_has_begun_two_finish(alone: Path, tmp_path: Path) -> None:
    begun = run(tmp_path / "begun")
    for shard in sorted((begun / "demo/answers").iterdir())[1:]:
        shard.unlink()
    (begun / "evaluation.json").unlink()
    run(begun, "devices=2")
    assert rows(begun) == rows(alone)
    assert (begun / "evaluation.json").read_bytes() == (alone / "evaluation.json").read_bytes()


def test_every_problem_is_answered_once_and_the_shares_are_alike() -> None:
    waiting = {Path("a"): list(range(5)), Path("b"): list(range(10, 12)), Path("c"): []}
    assigned = shares(waiting, 3)  # type: ignore[arg-type]
    assert Counter(prompt for share in assigned for prompts in share.values() for prompt in prompts) == Counter(
        [*range(5), 10, 11]
    )
    assert [sum(map(len, share.values())) for share in assigned] == [3, 2, 2]
    assert all(list(share) == list(waiting) for share in assigned)


def test_there_are_no_more_replicas_than_problems() -> None:
    assert [replica_count(devices, "cpu", 3) for devices in (1, 2, 8, "auto")] == [1, 2, 3, 1]
    assert replica_count(2, "cpu", 0) == 0


def test_a_replica_that_is_killed_ends_the_evaluation(tmp_path: Path) -> None:
    out = tmp_path / "out"
    killed = Thread(target=kill_one)
    killed.start()
    with pytest.raises(RunError) as caught:
        run(out, "devices=2")
    killed.join()
    assert str(caught.value) == (
        "replica 1 of the evaluation was killed by SIGKILL, as the kernel does when memory runs out; the same command "
        "continues where it was."
    )
    assert multiprocessing.active_children() == []


def kill_one() -> None:
    """Kills the second replica as soon as it is there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for process in multiprocessing.active_children():
            if process.name == "replica 1" and process.pid is not None:
                os.kill(process.pid, signal.SIGKILL)
                return
        time.sleep(0.05)


def test_a_replica_says_why_it_cannot_go_on(tmp_path: Path) -> None:
    config = checked(composed(tmp_path, f"model.path={tmp_path}/nothing"), EvaluateConfig)
    with pytest.raises(RunError) as caught:
        answer_on_replicas(config, {tmp_path / "demo": [None]}, 1, lambda name, more: None)  # type: ignore[list-item]
    assert str(caught.value).startswith(f"replica 0 of the evaluation failed: model.path={tmp_path}/nothing ")
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("devices", "sentence"),
    [
        ("0", "devices=0 is no number of processes; choose 1 or more, or auto."),
        ("many", "devices=many is no number of processes; choose 1 or more, or auto."),
        ("1000", f"devices=1000 is more than the {os.cpu_count()} cores of this machine, and each process needs one; "),
    ],
)
def test_devices_must_be_there(devices: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError) as caught:
        run(tmp_path / "out", f"devices={devices}")
    assert str(caught.value).startswith(sentence)


@pytest.mark.vllm
def test_replicas_of_vllm_give_the_answers_of_one(tmp_path: Path) -> None:
    settings = ["rollout=vllm", "rollout.engine.dtype=float32", "rollout.engine.enforce_eager=true"]
    one, two = run(tmp_path / "one", *settings), run(tmp_path / "two", *settings, "devices=2")
    assert rows(two) == rows(one)
