"""What the record callback stores, and when."""

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fake_run import batch, trainer
from made_rollouts import experience, rollout, score
from made_run import description

from ngrpo.callbacks.evaluation import Evaluation
from ngrpo.callbacks.run_record import RunRecord
from ngrpo.errors import SettingError
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.report.browsable import browsable
from ngrpo.report.run_store import RunStore
from ngrpo.report.stored_rollouts import Subset, stored_rollouts
from ngrpo.report.warning_collector import collecting_warnings
from ngrpo.types.problems import PromptBatch
from ngrpo.types.scores import Verdict

MIXED = rollout([90, 91], [1, 2, 3], {3: {2: 0.8, 4: 0.2}}, key=5)
PLAIN = rollout([90], [5, 6], key=6)
VERDICTS = [Verdict.CORRECT, Verdict.WRONG, Verdict.UNPARSABLE_REFERENCE, Verdict.NO_ANSWER]
MADE = experience([MIXED, PLAIN, PLAIN, MIXED], [score(v, "7") for v in VERDICTS], group_size=2)


class Words:
    def decode(self, ids: list[int]) -> str:
        return "".join(f" w{number}" for number in ids)


def run(results: list[EvaluationResult] | None = None, **more):
    evaluation = Evaluation(None, SimpleNamespace(eval_prompts=list), None)
    evaluation.results = results if results is not None else []
    metrics = {"train/reward": torch.tensor(0.25), "policy/kl": torch.tensor(torch.nan)}
    metrics["eval/mean@1"] = torch.tensor(0.5)  # stays there after the iteration that evaluated
    made = trainer(callbacks=[evaluation], **{"ckpt_path": None, **more})
    made.callback_metrics = metrics
    return made


def trained(callback: RunRecord, made, iterations: range) -> None:
    callback.on_train_start(made, None)
    for number in iterations:
        callback.on_train_batch_end(made, None, None, updated(number), 0)


def updated(number: int) -> PromptBatch:
    shown = batch(number, MADE)
    shown.update = SimpleNamespace(
        advantages=[torch.full((1, r.length), float(i)) for i, r in enumerate(MADE.rollouts)],
        entropies={r.key: r.key + torch.arange(r.length) / 4 for r in MADE.rollouts},
    )
    return shown


def test_every_iteration_is_stored_and_rollouts_of_some(tmp_path: Path):
    made = run([EvaluationResult(0, {"mean@1": 0.5}, {"": [0.0, 1.0]})])
    callback = RunRecord(tmp_path, Words(), every=2, groups=1, rollouts=1, tokens=2, keep=2)
    trained(callback, made, range(5))
    store = RunStore(tmp_path)
    records = store.iterations()
    assert [record.iteration for record in records] == [0, 1, 2, 3, 4]
    assert records[0].metrics == {"train/reward": 0.25}  # NaN is no number of JSON
    assert [(p.key, p.solved, p.tried) for p in records[0].problems] == [(0, 1, 2), (1, 0, 2)]
    assert [(e.iteration, e.rates) for e in store.evaluations()] == [(0, {"": [0.0, 1.0]})]
    assert store.rollout_iterations() == [0, 4]  # 2 went to make room
    (kept,) = store.rollouts(4)
    assert (kept.question, kept.reference, kept.answer, kept.verdict) == ("question 0", "0", "7", "correct")
    assert (kept.reward, kept.advantage, kept.length, kept.tokens) == (1.0, 0.0, 3, [" w1", " w2"])
    assert kept.entropies == [5.0, 5.25]
    assert [(m.place, m.names, m.noise) for m in kept.mixed] == [(1, [" w2", " w4"], None)]


def test_unscored_and_left_out_are_none(tmp_path: Path):
    trained(RunRecord(tmp_path, Words()), run(), range(1))
    stored = RunStore(tmp_path).rollouts(0)
    assert [(r.group, r.reward) for r in stored] == [(0, 1.0), (0, 0.0), (1, None), (1, 0.0)]
    assert [r.advantage for r in stored] == [0.0, 1.0, 2.0, 3.0]
    assert [r.entropies for r in stored] == [[5.0, 5.25, 5.5], [6.0, 6.25], [6.0, 6.25], [5.0, 5.25, 5.5]]


def test_numbers_of_given_tokens_are_unknown(tmp_path: Path):
    """Those of the generated ones stand at their own places in the response."""
    given = replace(MIXED, prefix_length=1, log_probs=torch.tensor([0.0, -1.5, -2.5]))
    made = replace(MADE, rollouts=[given, *MADE.rollouts[1:]])
    subset = Subset(groups=1, rollouts=1, tokens=2)
    (stored,) = stored_rollouts(Words(), made, [0.0] * 4, {5: [0.25, 0.5]}, subset)
    store = RunStore(tmp_path)
    store.add_rollouts(0, [stored], keep=1)
    shown = browsable(store.rollouts(0)[0])
    assert (shown["tokens"], shown["length"]) == ([" w1", " w2"], 3)
    assert (shown["logProbs"], shown["entropies"]) == ([None, -1.5], [None, 0.25])
    (unlearned,) = stored_rollouts(Words(), made, [0.0] * 4, {}, subset)
    assert unlearned.entropies == []


def test_the_last_iteration_keeps_its_rollouts_and_the_page_is_written(tmp_path: Path):
    callback, made = RunRecord(tmp_path, Words(), every=10, page_every=0), run()
    trained(callback, made, range(2))
    assert "question 0" not in (tmp_path / "report.html").read_text()
    made.should_stop = True
    trained(callback, made, range(2, 3))
    callback.on_train_end(made, None)
    assert RunStore(tmp_path).rollout_iterations() == [0, 2]
    assert "question 0" in (tmp_path / "report.html").read_text()


def test_pages_on_the_way(tmp_path: Path):
    callback, made = RunRecord(tmp_path, Words(), page_every=2), run()
    pages = []
    for iterations in (range(0), range(1), range(1, 2)):
        trained(callback, made, iterations)
        pages.append((tmp_path / "report.html").read_text())
    assert ["question 0" in text for text in pages] == [False, False, True]
    (tmp_path / "report.html").unlink()
    callback.on_train_batch_end(made, None, None, updated(2), 0)
    assert not (tmp_path / "report.html").exists()
    callback.on_train_batch_end(made, None, None, updated(3), 0)
    assert (tmp_path / "report.html").exists()


def test_the_record_says_what_the_run_is_and_what_was_warned_of(tmp_path: Path):
    with collecting_warnings() as warned:
        logging.getLogger("ngrpo.somewhere").warning("before the %s", "start")
        callback = RunRecord(tmp_path, Words(), description=description(), warned=warned)
        trained(callback, run(), range(1))
        logging.getLogger("ngrpo.somewhere").warning("on the way")
        logging.getLogger("ngrpo.somewhere").warning("on the way")
        logging.getLogger("ngrpo.somewhere").info("nothing")
    store = RunStore(tmp_path)
    assert store.description() == description()
    assert [warning.message for warning in store.warnings()] == ["before the start", "on the way"]


def test_a_resumed_run_goes_on_in_its_own_folder(tmp_path: Path):
    """The first run went one iteration beyond its checkpoint."""
    first, second = tmp_path / "first", tmp_path / "second"
    trained(RunRecord(first, Words(), every=1), run(), range(4))
    made = run(ckpt_path=first / "checkpoints" / "iteration-3" / "state.ckpt")
    trained(RunRecord(second, Words(), every=1), made, range(3, 6))
    assert [record.iteration for record in RunStore(second).iterations()] == [0, 1, 2, 3, 4, 5]
    assert RunStore(second).rollout_iterations() == [0, 1, 2, 3, 4, 5]
    assert [record.iteration for record in RunStore(first).iterations()] == [0, 1, 2, 3]


def test_the_closing_evaluation_of_a_run_that_goes_on_is_logged_again(tmp_path: Path):
    closing = EvaluationResult(2, {"mean@1": 0.75}, {"": [1.0]})
    callback = RunRecord(tmp_path, Words())
    trained(callback, run([closing]), range(2))
    resumed = {"ckpt_path": tmp_path / "checkpoints" / "iteration-2" / "state.ckpt"}
    made = run([], **resumed)
    trained(RunRecord(tmp_path, Words()), made, range(0))
    assert made.loggers[0].logged == [(2, {"eval/mean@1": 0.75})]
    made = run([closing], **resumed)  # which the evaluation's own callback logs
    trained(RunRecord(tmp_path, Words()), made, range(0))
    assert made.loggers[0].logged == []


def test_other_ranks_write_nothing(tmp_path: Path):
    made = run()
    made.is_global_zero = False
    callback = RunRecord(tmp_path, Words())
    trained(callback, made, range(1))
    callback.on_train_end(made, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "value"), [("every", 0), ("keep", 1), ("tokens", 0), ("page_every", -1)])
def test_settings_are_checked(tmp_path: Path, name: str, value: int):
    with pytest.raises(SettingError, match=rf"callbacks\.run_record\.{name}={value} must be"):
        RunRecord(tmp_path, Words(), **{name: value})
