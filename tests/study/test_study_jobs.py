"""What a study does and in which order, with commands that leave what the real ones would."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from made_answers import row, table
from places import ROOT

from ngrpo.errors import RunError, SettingError
from ngrpo.evaluation.answer_store import AnswerStore
from ngrpo.report.run_records import IterationRecord
from ngrpo.report.run_store import RunStore
from ngrpo.study.definition import StudyConfig, as_json, load_study, only
from ngrpo.study.difficulty import nearest
from ngrpo.study.results import RateTrial, write
from ngrpo.study.room import Room
from ngrpo.study.scheduler import Deadline
from ngrpo.study.stage_outputs import TUNED, collect, read_rate_choices
from ngrpo.study.stages import StageContext, tune
from ngrpo.study.study_jobs import StudyJobs, choice
from ngrpo.training.run_length import RunLength

CONF = ROOT / "conf"
TRAIN, EVALUATE = "ngrpo.entrypoints.train_command", "ngrpo.entrypoints.evaluate_command"


class FakeRunner:
    """Notes the commands and writes what they would; the validation accuracy is highest at 3e-4."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.fail_in = ""

    def device_name(self) -> str:
        return "a card"

    def run(self, command: Sequence[str], log: Path) -> float:
        module, words = command[3], dict(word.split("=", 1) for word in command[4:])
        self.commands.append(f"{module} {log.parent.name}")
        if self.fail_in and self.fail_in in module:
            raise RunError("no")
        self.train(Path(words["hydra.run.dir"]), words) if "train" in module else self.evaluate(words)
        return 2.0

    def train(self, folder: Path, words: dict[str, str]) -> None:
        iterations = int(words["trainer.iterations"])
        RunStore(folder).add_iteration(IterationRecord(0, {"policy/entropy": 1.0}, []))
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text("{}")
        summary = {"iterations": iterations, "tokens_generated": 70, "wall_s": 1.5, "versions": {"torch": "2"}}
        (folder / "summary.json").write_text(json.dumps(summary))

    def evaluate(self, words: dict[str, str]) -> None:
        store = AnswerStore(Path(words["out"]) / "custom")
        store.open({"n": 2})
        right = "0.0003" in words["model.path"]
        store.add(table([row(0, 0, "1", True), row(0, 1, "1", right)]))


@pytest.fixture
def study() -> StudyConfig:
    return load_study(CONF, "quick", ["test.samples=2", "tune.validation.samples=2"])


def do(jobs: list, runner: FakeRunner) -> None:
    for job in jobs:
        job.run(runner)


def test_everything_is_done_once_and_skipped_when_it_is_there(study: StudyConfig, tmp_path: Path) -> None:
    runner, todo = FakeRunner(), StudyJobs(study, tmp_path)
    assert todo.model_job() == []
    do(todo.base_job() + todo.tune_jobs(), runner)
    tuned = todo.rate_choices()
    assert {arm: one.chosen for arm, one in tuned.items()} == {"token_grpo": 3e-4, "neighbor_grpo": 3e-4}
    write(tmp_path / TUNED, tuned)
    assert read_rate_choices(tmp_path) == tuned
    jobs = todo.run_jobs(tuned)
    assert [job.name for job in jobs] == [f"run {arm} seed {seed}" for seed in (0, 1) for arm in study.arms]
    do(jobs, runner)
    assert len(runner.commands) == 1 + 4 * 2 + 4 * 2
    assert todo.base_job() == todo.tune_jobs() == todo.run_jobs(tuned) == []

    (todo.run_folder("neighbor_grpo", tuned["neighbor_grpo"], 1) / "result.json").unlink()
    (again,) = todo.run_jobs(tuned)
    assert again.name == "run neighbor_grpo seed 1"
    results = collect(as_json(study), tmp_path)
    assert [(run.arm, run.seed) for run in results.runs] == [("neighbor_grpo", 0), ("token_grpo", 0), ("token_grpo", 1)]
    assert results.base is not None
    run = results.runs[0]
    assert (run.rate, run.test.right, run.curves) == (3e-4, [2], {"policy/entropy": [1.0]})
    assert run.device == "a card"
    assert run.settings[-3:] == ["seed=0", "trainer.iterations=3", "trainer.optimizer.lr=0.0003"]


def test_a_rate_that_is_tried_later_and_chosen_has_runs_of_its_own(study: StudyConfig, tmp_path: Path) -> None:
    runner, few = FakeRunner(), StudyJobs(replace(study, tune=replace(study.tune, rates=[1e-4])), tmp_path)
    do(few.tune_jobs(), runner)
    do(few.run_jobs(few.rate_choices()), runner)
    todo = StudyJobs(study, tmp_path)
    assert [job.name for job in todo.tune_jobs()] == ["tune token_grpo 0.0003", "tune neighbor_grpo 0.0003"]
    do(todo.tune_jobs(), runner)
    tuned = todo.rate_choices()
    write(tmp_path / TUNED, tuned)
    assert collect(as_json(study), tmp_path).runs == []
    assert len(todo.run_jobs(tuned)) == 4
    do(todo.run_jobs(tuned)[:1], runner)
    assert [run.rate for run in collect(as_json(study), tmp_path).runs] == [3e-4]
    write(tmp_path / TUNED, few.rate_choices())
    assert [run.rate for run in collect(as_json(study), tmp_path).runs] == [1e-4] * 4


def test_a_finished_training_is_kept_and_an_unfinished_one_made_again(study: StudyConfig, tmp_path: Path) -> None:
    todo, runner = StudyJobs(study, tmp_path), FakeRunner()
    runner.fail_in = "evaluate"
    job = todo.tune_jobs()[0]
    with pytest.raises(RunError):
        job.run(runner)
    runner.fail_in = ""
    job.run(runner)
    assert [name.split()[0] for name in runner.commands] == [
        TRAIN, EVALUATE, EVALUATE
    ]  # fmt: skip

    other, runner = todo.tune_jobs()[0], FakeRunner()
    train = tmp_path / "tune" / other.name.split()[1] / other.name.split()[2] / "train"
    train.mkdir(parents=True)
    (train / "summary.json").write_text('{"iterations": 1, "tokens_generated": 9, "wall_s": 1.0}')
    (train.parent / "answers" / "old").mkdir(parents=True)
    other.run(runner)
    assert [name.split()[0] for name in runner.commands] == [TRAIN, EVALUATE]
    assert not (train.parent / "answers" / "old").exists()


def test_only_results_stay_where_files_are_not_kept(tmp_path: Path) -> None:
    todo = StudyJobs(load_study(CONF, "quick", ["keep_files=false", "tune.validation.samples=2"]), tmp_path)
    todo.tune_jobs()[0].run(FakeRunner())
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["result.json"]


def test_choices_of_other_arms_stay_where_one_arm_is_tuned(study: StudyConfig, tmp_path: Path) -> None:
    runner, todo = FakeRunner(), StudyJobs(study, tmp_path)
    do(todo.tune_jobs(), runner)
    for arm in study.arms:
        context = StageContext(only(study, [arm]), CONF, tmp_path, tmp_path, 1, Deadline())
        assert tune(context) == []
    assert read_rate_choices(tmp_path) == todo.rate_choices()
    assert set(read_rate_choices(tmp_path)) == set(study.arms)


def test_runs_wait_for_the_rates(study: StudyConfig, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="token_grpo, neighbor_grpo have no learning rate yet"):
        StudyJobs(study, tmp_path).run_jobs({})


def test_the_best_rate_is_chosen_and_the_lowest_of_equals() -> None:
    tried = [RateTrial(rate, {"m": value}) for rate, value in ((1e-3, 0.5), (1e-4, 0.7), (1e-5, 0.7), (1e-6, 0.1))]
    assert choice(tried, "m").rate == 1e-5
    diverged = RateTrial(1e-6, {"m": math.nan})
    assert choice([diverged, *tried], "m").rate == choice([*tried, diverged], "m").rate == 1e-5


def test_the_level_nearest_to_the_middle_is_chosen(study: StudyConfig) -> None:
    rooms = {name: Room(8, mean, 0.6) for name, mean in (("a", 0.5), ("b", 0.29), ("c", 0.12), ("d", 0.0))}
    assert nearest(rooms, study.levels) == "c"
    assert nearest({"a": rooms["a"]}, study.levels) is None
    study.levels.gain, study.levels.unsolved = 0.3, 0.5
    rooms |= {"c": Room(8, 0.12, 0.4), "e": Room(8, 0.25, 0.55), "f": Room(8, 0.2, 0.45)}
    assert nearest(rooms, study.levels) is None
    assert rooms["f"].sentence(study.levels) == (
        "Mean@1 0.200, Pass@8 0.450, unsolved 0.550; Pass@8 is not 0.300 above it"
    )
    study.levels.gain = 0.2
    assert nearest(rooms, study.levels) == "f"


def test_room_counts_problems_that_are_never_solved() -> None:
    assert Room.of(4, [0, 0, 1, 3]) == Room(4, 0.25, 0.5)


def test_strengths_are_tried_with_every_rate_and_the_best_pair_is_run(tmp_path: Path) -> None:
    words = ["test.samples=2", "tune.validation.samples=2", "generated_tokens=90", "tune.generated_tokens=40"]
    study = load_study(
        CONF, "quick", [*words, "arms.neighbor_grpo.strengths=['exploration.rate=0.1','exploration.k=5']"]
    )
    runner, todo = FakeRunner(), StudyJobs(study, tmp_path)
    assert len(todo.tune_jobs()) == 6
    do(todo.tune_jobs(), runner)
    tuned = todo.rate_choices()
    assert tuned["token_grpo"].strength is None
    assert (tuned["neighbor_grpo"].chosen, tuned["neighbor_grpo"].strength) == (3e-4, "exploration.rate=0.1")
    write(tmp_path / TUNED, tuned)
    assert read_rate_choices(tmp_path) == tuned
    do(todo.run_jobs(tuned), runner)
    for run in collect(as_json(study), tmp_path).runs:
        assert ("exploration.rate=0.1" in run.settings) == (run.arm == "neighbor_grpo")
        assert run.settings[-1] == "trainer.max_generated_tokens=90"
        assert (run.tokens, run.versions, run.test.solutions) == (70, {"torch": "2"}, [1])
    other = dict(tuned, neighbor_grpo=replace(tuned["neighbor_grpo"], strength="exploration.k=5"))
    write(tmp_path / TUNED, other)
    assert {run.arm for run in collect(as_json(study), tmp_path).runs} == {"token_grpo"}


def test_a_training_is_over_by_its_tokens_or_its_iterations(study: StudyConfig, tmp_path: Path) -> None:
    runner, todo = FakeRunner(), StudyJobs(study, tmp_path)
    settings = todo.train_settings("token_grpo", 0, 1e-4, RunLength(3))
    assert todo._train(runner, tmp_path / "run", settings, RunLength(3)) == 2.0
    for length in (RunLength(3), RunLength(9, 70)):
        assert todo._train(runner, tmp_path / "run", settings, length) == 1.5
    assert todo._train(runner, tmp_path / "run", settings, RunLength(9, 71)) == 2.0


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("reference=soft_grpo", "reference=soft_grpo is no arm"),
        ("arms.neighbor_grpo.against=gspo", r"arms\.neighbor_grpo\.against=gspo is no arm; choose one of token_grpo"),
        ("diversity.path=letters", "path=letters is not known"),
        ("arms.token_grpo.seeds=0", "arms.token_grpo.seeds=0"),
        ("tune.seed=1", "tune.seed=1 is also a seed"),
        ("tune.rates=[]", "no learning rate"),
    ],
)
def test_contradictions_are_refused(override: str, message: str) -> None:
    with pytest.raises(SettingError, match=message.replace("[", r"\[")):
        load_study(CONF, "quick", [override])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("primary.comparisons.0.arm=soft", r"primary\.comparisons\.0\.arm=soft is no arm"),
        (
            "arms.token_maxrl.seeds=1",
            r"token_maxrl\.seeds=1 decides no comparison, but primary\.comparisons\.1 is",
        ),
        ("primary.family=3", r"primary\.family=3 is fewer than the 4 comparisons"),
        ("primary.assumed_sd=0", r"primary\.assumed_sd=0\.0 is no standard deviation"),
        ("primary.power=0.3", r"primary\.power=0\.3 is no probability of at least a half"),
    ],
)
def test_comparisons_that_cannot_be_decided_are_refused(override: str, message: str) -> None:
    load_study(CONF, "countdown", [])
    with pytest.raises(SettingError, match=message):
        load_study(CONF, "countdown", [override])
