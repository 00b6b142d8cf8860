"""The whole of ``scripts/study.py --quick``: interrupted, continued, and reported of again."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from forked import succeed

from ngrpo.entrypoints import study_command
from ngrpo.study.definition import StudyConfig, load_study
from ngrpo.study.results import load
from ngrpo.study.stages import STAGES, StageContext

FEWER = ["arms.token_grpo.seeds=1", "arms.neighbor_grpo.seeds=1", "tune.rates=[1e-4]", "iterations=2"]


def study(*words: str) -> str:
    return succeed("study.py", *words)


@pytest.mark.slow
def test_quick_study_from_beginning_to_end(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    words = ["all", "--quick", *FEWER, "--jobs", "2", "--out", str(out), "--to", str(tmp_path / "report")]
    assert "stage base: 1 not done yet; run the same command again" in study(*words, "--limit-seconds", "1")
    assert not (out / "base" / "result.json").exists()
    printed = study(*words)
    assert "| neighbor_grpo | 1 | 0.0001 |" in printed
    results = load(tmp_path / "report" / "results.json")
    assert [(run.arm, run.iterations, len(run.test.right)) for run in results.runs] == [
        ("neighbor_grpo", 2, 16), ("token_grpo", 2, 16)
    ]  # fmt: skip
    assert {"policy/entropy", "train/reward", "train/distinct_paths"} <= set(results.runs[0].curves)
    assert "exploration/cosine_mean" in results.runs[0].curves
    effect = results.effects["neighbor_grpo"]
    assert effect is not None
    assert 0.0 < effect.mixed < 0.2
    assert results.effects["token_grpo"] is None
    assert {len(speed.tokens_per_s) for speed in results.speeds.values()} == {2}

    before = {file: file.read_bytes() for file in out.rglob("result.json")}
    lost = out / "runs" / "neighbor_grpo" / "0.0001" / "seed-0" / "result.json"
    lost.unlink()
    again = study(*words)
    assert again.count(": started") == 1
    assert {file: file.read_bytes() for file in before if file != lost} == {
        file: content for file, content in before.items() if file != lost
    }
    assert load(tmp_path / "report" / "results.json").of_arm("neighbor_grpo")[0].test == results.runs[0].test

    study("report", "--quick", "--results", str(tmp_path / "report" / "results.json"), "--to", str(tmp_path / "new"))
    for name in ("quick.md", "quick.png"):
        assert (tmp_path / "new" / name).read_bytes() == (tmp_path / "report" / name).read_bytes()


def test_the_difficulty_may_be_chosen_once_the_model_is_there_but_not_later(tmp_path: Path) -> None:
    words = ["--quick", "--limit-seconds", "0", "--out", str(tmp_path)]
    study("model", *words)
    study("base", *words, "levels.chosen=demo:1-3")
    with pytest.raises(AssertionError, match=r'levels\.chosen="demo:1-2" is not the "demo:1-3"'):
        study("base", *words)


def test_the_limit_counts_from_the_beginning_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[float] = []

    def slow(*arguments: Any) -> StudyConfig:
        time.sleep(0.5)
        return load_study(*arguments)

    def note(_: Sequence[str], context: StageContext) -> bool:
        left.append(context.deadline.remaining_s())
        return True

    monkeypatch.setattr("ngrpo.study.definition.load_study", slow)
    monkeypatch.setattr("ngrpo.study.stages.run_stages", note)
    words = ["study", "base", "--quick", "--limit-seconds", "60", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", words)
    study_command.main()
    assert 0 < left[0] <= 59.5


def test_the_stages_are_those_of_the_command_line() -> None:
    assert ("all", *STAGES) == study_command._STAGES


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"out has no results of study quick; run its stages first"):
        study("report", "--quick", "--out", str(tmp_path / "out"), "--to", str(tmp_path / "report"))
    assert not (tmp_path / "report").exists()
