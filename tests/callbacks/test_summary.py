"""The closing table, and a summary without an evaluation."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_run import batch, trainer
from rich.console import Console
from rich.table import Table

from ngrpo.callbacks.evaluation import Evaluation
from ngrpo.callbacks.rollout import RolloutCallback
from ngrpo.callbacks.summary import Summary, closing_table
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.rollout.dynamic_sampling import DynamicSampling, every_group
from ngrpo.training.run_length import RunLength

METHODS = {"algo": "gspo", "exploration": "neighbor"}
BEFORE, AFTER = {"mean@1": 0.25, "pass@4": 0.5}, {"mean@1": 0.375, "pass@4": 0.4996}


def words(table: Table) -> list[list[str]]:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table)
    return [line.replace("┃", "").replace("│", "").split() for line in capture.get().splitlines()]


def run(results: list[EvaluationResult] | None):
    """A trainer whose rollout callback has done 3 iterations."""
    worker = SimpleNamespace(exploration=SimpleNamespace(refresh_every=0))
    rollouts = RolloutCallback(worker, RunLength(3), DynamicSampling(every_group))
    rollouts.iterations_done, rollouts.tokens_generated = 3, 70
    made = trainer(callbacks=[rollouts])
    if results is not None:
        evaluation = Evaluation(worker, SimpleNamespace(eval_prompts=list), None)
        evaluation.results = results
        made.callbacks.append(evaluation)
    return made


def written(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    return Summary(tmp_path, SimpleNamespace(rows_left_out={"missing_answer": 2}), METHODS, seed=4)


def test_closing_table_has_before_after_and_change():
    lines = words(
        closing_table(
            [EvaluationResult(0, BEFORE, {}), EvaluationResult(2, {}, {}), EvaluationResult(8, AFTER, {})], METHODS
        )
    )
    assert lines[0] == ["algo=gspo", "exploration=neighbor"]
    assert ["held-out", "iteration", "0", "iteration", "8", "change"] in lines
    assert ["mean@1", "0.250", "0.375", "+0.125"] in lines
    assert ["pass@4", "0.500", "0.500", "+0.000"] in lines


def test_closing_table_without_evaluation_says_what_to_set():
    lines = words(closing_table([], METHODS))
    assert any("data.eval_path" in line for line in lines)


@pytest.mark.parametrize("results", [None, []])
def test_a_run_without_evaluation_has_a_summary(summary: Summary, tmp_path: Path, results, capsys):
    made = run(results)
    summary.on_train_start(made, None)
    summary.on_train_batch_end(made, None, None, batch(2), 0)
    summary.on_train_end(made, None)
    found = written(tmp_path)
    assert found["eval"] == {"before": None, "after": None, "history": []}
    assert (found["iterations"], found["tokens_generated"], found["seed"], found["methods"]) == (3, 70, 4, METHODS)
    assert found["rows_left_out"] == {"missing_answer": 2}
    assert "rows left out: 2 missing_answer" in capsys.readouterr().out


def test_written_anew_only_when_there_is_a_new_evaluation(summary: Summary, tmp_path: Path):
    made = run([EvaluationResult(0, BEFORE, {})])
    summary.on_train_start(made, None)
    assert written(tmp_path)["eval"] == {"before": BEFORE, "after": None, "history": [{"iteration": 0, **BEFORE}]}
    (tmp_path / "summary.json").unlink()
    summary.on_train_batch_end(made, None, None, batch(0), 0)
    assert not (tmp_path / "summary.json").exists()
    made.callbacks[1].results.append(EvaluationResult(2, AFTER, {}))
    summary.on_train_batch_end(made, None, None, batch(1), 0)
    assert written(tmp_path)["eval"]["after"] == AFTER
    assert not (tmp_path / "summary.json.tmp").exists()


def test_problems_with_an_unusable_reference_are_listed_with_the_rows_left_out(summary: Summary, tmp_path: Path):
    made = run(None)
    made.callbacks[0].unparsable_references = 5
    summary.on_train_start(made, None)
    assert written(tmp_path)["rows_left_out"] == {"missing_answer": 2, "unparsable_reference": 5}


def test_time_before_a_resume_counts(tmp_path: Path, summary: Summary):
    later = Summary(tmp_path, SimpleNamespace(rows_left_out={}), METHODS, seed=4)
    later.load_state_dict({"wall_s": 1000.0})
    assert 1000.0 < later.wall_s < 1060.0
    assert later.state_dict()["wall_s"] > summary.state_dict()["wall_s"] + 900


def test_other_ranks_write_nothing(summary: Summary, tmp_path: Path):
    made = run([])
    made.is_global_zero = False
    summary.on_train_start(made, None)
    summary.on_train_end(made, None)
    assert list(tmp_path.iterdir()) == []
