"""The record on disk over kills and resumes."""

from dataclasses import replace
from pathlib import Path

import pytest
from made_run import rollouts
from pyarrow import parquet

from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.report.run_records import IterationRecord, ProblemRate
from ngrpo.report.run_store import RunStore, surplus


def iteration(number: int, reward: float = 0.5) -> IterationRecord:
    return IterationRecord(number, {"train/reward": reward}, [ProblemRate(number, 1, 4)])


def filled(folder: Path, iterations: int) -> RunStore:
    store = RunStore(folder)
    for number in range(iterations):
        store.add_iteration(iteration(number))
        store.add_rollouts(number, rollouts(), keep=100)
        store.add_evaluation(EvaluationResult(number, {"mean@1": 0.5}, {"": [0.25, 0.75]}))
    return store


def test_what_is_written_is_read(tmp_path: Path):
    store = filled(tmp_path, 2)
    assert store.iterations() == [iteration(0), iteration(1)]
    assert store.evaluations()[1] == EvaluationResult(1, {"mean@1": 0.5}, {"": [0.25, 0.75]})
    read = store.rollouts(1)
    assert [r.tokens for r in read] == [r.tokens for r in rollouts()]
    assert [(m.place, m.names) for m in read[0].mixed] == [(m.place, m.names) for m in rollouts()[0].mixed]
    assert read[0].mixed[0].weights == pytest.approx([0.7, 0.2, 0.1])
    assert (read[3].reward, read[3].verdict) == (None, "unparsable_reference")


def test_nothing_was_written(tmp_path: Path):
    store = RunStore(tmp_path)
    assert (store.iterations(), store.evaluations(), store.rollout_iterations()) == ([], [], [])


def test_a_torn_line_is_left_out_and_ended(tmp_path: Path):
    store = filled(tmp_path, 2)
    file = tmp_path / "record" / "iterations.jsonl"
    file.write_bytes(file.read_bytes()[:-7])
    assert store.iterations() == [iteration(0)]
    store.add_iteration(iteration(1, reward=0.9))
    store.add_iteration(iteration(2))
    assert store.iterations() == [iteration(0), iteration(1, reward=0.9), iteration(2)]


def test_an_iteration_made_again_replaces_the_first(tmp_path: Path):
    store = filled(tmp_path, 2)
    store.add_iteration(iteration(0, reward=0.1))
    assert store.iterations() == [iteration(0, reward=0.1), iteration(1)]


@pytest.mark.parametrize("same_folder", [True, False])
def test_a_resumed_run_keeps_what_its_checkpoint_has_behind_it(tmp_path: Path, same_folder: bool):
    filled(tmp_path / "a", 6)
    store = RunStore(tmp_path / ("a" if same_folder else "b"))
    if not same_folder:
        (tmp_path / "b").mkdir()
    store.go_on_from(tmp_path / "a", done=4)
    assert [record.iteration for record in store.iterations()] == [0, 1, 2, 3]
    assert [record.iteration for record in store.evaluations()] == [0, 1, 2, 3, 4]
    assert store.rollout_iterations() == [0, 1, 2, 3]
    assert store.rollouts(3) == RunStore(tmp_path / "a").rollouts(3)
    assert [path.name for path in store.folder.parent.iterdir()] == ["record"]


def test_a_run_resumed_from_one_without_a_record_starts_one(tmp_path: Path):
    store = RunStore(tmp_path)
    store.go_on_from(tmp_path / "gone", done=4)
    store.add_iteration(iteration(4))
    assert store.iterations() == [iteration(4)]


def test_kept_rollouts_are_bounded_and_spread_over_the_run(tmp_path: Path):
    store = RunStore(tmp_path)
    for number in range(0, 1000, 10):
        store.add_rollouts(number, rollouts()[:1], keep=6)
    kept = store.rollout_iterations()
    assert len(kept) == 6
    assert (kept[0], kept[-1]) == (0, 990)
    gaps = [b - a for a, b in zip(kept, kept[1:], strict=False)]
    assert max(gaps) <= 500


def test_the_closest_neighbours_give_one_up():
    assert surplus([0, 10, 12, 30]) == 10
    assert surplus([0, 1, 9]) == 1


def test_forks_of_a_response_are_kept_and_absent_from_earlier_records(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.add_rollouts(0, [replace(rollouts()[0], forks=[1, 2])], keep=100)
    assert store.rollouts(0)[0].forks == [1, 2]
    file = next(path for path in store.folder.rglob("*.parquet"))
    table = parquet.ParquetFile(file).read()
    parquet.write_table(table.drop_columns(["forks"]), file)
    assert store.rollouts(0)[0].forks == []
