"""An evaluation from the command line: what it stores, that it survives being killed, and what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import direct_figures as direct
import pytest
from hydra import compose, initialize_config_dir
from places import ROOT

from ngrpo.config.schema import register
from ngrpo.entrypoints.evaluate import evaluate
from ngrpo.errors import RunError, SettingError
from ngrpo.evaluation.answer_store import AnswerStore
from ngrpo.rollout.torch_engine.engine import TorchEngine

SMALL = ["n=4", "benchmark.demo.problems=5", "problems_at_once=2", "rollout.max_new_tokens=32", "accelerator=cpu"]


def run(out: Path, *overrides: str):
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        config = compose("evaluate", overrides=[*SMALL, f"out={out}", *overrides])
    out.mkdir(exist_ok=True)
    return evaluate(config, out)


def rows(out: Path, name: str = "demo") -> list[dict]:
    return AnswerStore(out / name).table().to_pylist()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("evaluating") / "whole"
    run(out)
    return out


def test_figures_are_those_of_the_stored_answers(whole: Path) -> None:
    written = json.loads((whole / "evaluation.json").read_text())["benchmarks"]["demo"]
    assert (written["problems"], written["samples"], written["unusable_references"]) == (5, 4, 0)
    found = {name: one["value"] for name, one in written["metrics"].items()}
    assert found == pytest.approx(direct.figures(rows(whole), [1, 2, 4]), abs=1e-12)
    assert 0 < found["mean@4"] < 1


def test_answers_are_complete(whole: Path) -> None:
    found = rows(whole)
    assert [(r["problem"], r["sample"]) for r in found] == [(p, s) for p in range(5) for s in range(4)]
    assert len({r["key"] for r in found}) == 20
    assert all(r["score"] == float(r["correct"]) and r["seed"] == 0 and r["length"] >= 1 for r in found)
    assert all(r["answer"] is None or r["answer"] in r["text"] for r in found)


def test_a_finished_evaluation_loads_no_model(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (whole / "evaluation.json").read_bytes()
    monkeypatch.setattr(TorchEngine, "start", lambda *_: pytest.fail("the engine was started"))
    run(whole)
    assert (whole / "evaluation.json").read_bytes() == before


def test_the_answers_do_not_depend_on_how_many_problems_go_together(whole: Path, tmp_path: Path) -> None:
    run(tmp_path / "out", "problems_at_once=5", "rollout.engine.max_batch_size=3")
    assert rows(tmp_path / "out") == rows(whole)


def test_other_settings_are_refused_before_a_model_is_loaded(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TorchEngine, "start", lambda *_: pytest.fail("the engine was started"))
    for override, name in (
        ("n=8", "n"),
        ("seed=1", "seed"),
        ("evaluator.temperature=0.5", r"evaluator\.temperature"),
        ("rollout.max_new_tokens=16", r"rollout\.max_new_tokens"),
        ("benchmark.demo.problems=4", r"benchmark\.problems"),
        ("reward.timeout_s=1.0", r"reward\.timeout_s"),
        ("+evaluator.exploration._target_=ngrpo.exploration.min_p.MinPSampling", r"evaluator\.exploration"),
    ):
        with pytest.raises(SettingError, match=f"holds answers to demo made with {name}="):
            run(whole, override)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("k=[8]", "k=8 has no unbiased Pass@k from n=4"),
        ("problems_at_once=0", "problems_at_once=0"),
        ("rollout.max_new_tokens=4000", "exceeds"),
    ],
)
def test_what_cannot_work_is_refused(override: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=message):
        run(tmp_path / "out", override)


def test_no_benchmark_is_refused(tmp_path: Path) -> None:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        config = compose("evaluate", overrides=["benchmark=[]"])
    with pytest.raises(SettingError, match=r"benchmark=\[\] evaluates nothing"):
        evaluate(config, tmp_path)


def test_several_benchmarks_and_a_local_file(tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text('[{"problem": "What is 2 + 2?", "answer": 4}, {"problem": "lost", "answer": null}]')
    reports = run(tmp_path / "out", "benchmark=[demo,custom]", f"benchmark.custom.path={file}", "n=2")
    assert {name: one.problems for name, one in reports.items()} == {"demo": 5, "custom": 1}
    written = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert written["benchmarks"]["custom"]["rows_left_out"] == {"missing_answer": 1}
    halves = [one.metrics["length"].value / 2 for one in reports.values()]
    assert written["average"]["length"] == pytest.approx(sum(halves))


@pytest.mark.faults
def test_killed_and_resumed_nothing_is_lost(tmp_path: Path) -> None:
    overrides = ["n=8", "benchmark.demo.problems=24", "problems_at_once=1", "rollout.max_new_tokens=32"]
    killed, straight = tmp_path / "killed", tmp_path / "straight"
    kill_half_way(start(killed, overrides), killed, shards=6)
    kept = {path: path.stat().st_mtime_ns for path in shards(killed)}
    assert 6 <= len(kept) < 24
    assert not (killed / "evaluation.json").exists()
    for out in (killed, straight):
        assert start(out, overrides).wait(timeout=120) == 0
    assert {path: path.stat().st_mtime_ns for path in shards(killed) if path in kept} == kept
    assert rows(killed) == rows(straight)
    assert (killed / "evaluation.json").read_bytes() == (straight / "evaluation.json").read_bytes()


def start(out: Path, overrides: list[str]) -> subprocess.Popen:
    command = [sys.executable, "scripts/evaluate.py", *overrides, "accelerator=cpu", f"out={out}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)


def kill_half_way(process: subprocess.Popen, out: Path, shards: int) -> None:
    while len(list(out.glob("demo/answers/*.parquet"))) < shards:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def shards(out: Path) -> list[Path]:
    return sorted(out.glob("demo/answers/*.parquet"))


def test_a_custom_reward_may_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not judged is neither right nor wrong; what was judged before is kept."""
    monkeypatch.syspath_prepend(str(ROOT / "tests/helpers"))
    out = tmp_path / "out"
    mine = [
        "~reward", "+reward._target_=isolated_objects.HangingAt", "+reward.call=3",  # the first is the trial
        f"+reward.marker={tmp_path / 'calls'}",
        "allow_targets=[isolated_objects]", "custom_reward_timeout_s=3",
    ]  # fmt: skip
    with pytest.raises(RunError, match=r"reward took longer than custom_reward_timeout_s=3; .* command continues"):
        run(out, *mine)
    assert {row["problem"] for row in rows(out)} == {0, 1}
    run(out, *mine)
    assert len(rows(out)) == 20
    assert {row["verdict"] for row in rows(out)} == {"correct"}
