"""When evaluation runs, and what is kept of it."""

from types import SimpleNamespace

import pytest
from fake_run import batch, trainer

from ngrpo.callbacks.evaluation import Evaluation, evaluation_results
from ngrpo.distributed.collectives import SINGLE_PROCESS, Ranks
from ngrpo.errors import SettingError
from ngrpo.evaluation.evaluation_result import EvaluationResult
from ngrpo.evaluation.evaluator import Evaluated
from ngrpo.types.problems import Problem, Prompt


def prompts_of(*questions: str) -> list[Prompt]:
    return [Prompt(Problem(key, question, "1"), (key,)) for key, question in enumerate(questions)]


PROMPTS = prompts_of("first", "second")


class Evaluator:
    """Mean@1 rises by 0.1 an evaluation, and responses grow by a token."""

    def __init__(self, samples: int = 4) -> None:
        self.samples = samples
        self.ran: list[tuple] = []
        self.told: list[list[float] | None] = []

    def __repr__(self) -> str:
        return f"Evaluator(samples={self.samples})"

    def run(self, worker, prompts, place: Ranks, lengths: list[float] | None) -> Evaluated:
        self.ran.append((prompts, place))
        self.told.append(lengths)
        return Evaluated({"mean@1": len(self.ran) / 10}, [0.5], [float(len(self.ran))] * len(prompts))


def made(every: int, prompts: list[Prompt] = PROMPTS, samples: int = 4) -> Evaluation:
    return Evaluation(None, SimpleNamespace(eval_prompts=lambda: prompts), Evaluator(samples), every)


def fit(callback: Evaluation, iterations: range, run=None) -> list[int]:
    """Calls the hooks as the trainer does; returns after how many iterations each evaluation ran."""
    run = run or trainer()
    callback.on_train_start(run, None)
    for iteration in iterations:
        callback.on_train_batch_end(run, None, None, batch(iteration), 0)
    callback.on_train_end(run, None)
    return [result.iteration for result in callback.results]


@pytest.mark.parametrize(
    ("every", "iterations", "expected"),
    [(0, 5, [0, 5]), (2, 5, [0, 2, 4, 5]), (2, 4, [0, 2, 4]), (1, 2, [0, 1, 2]), (9, 3, [0, 3])],
)
def test_before_in_between_and_after_and_never_twice(every: int, iterations: int, expected: list[int]):
    callback, run = made(every), trainer()
    assert fit(callback, range(iterations), run) == expected
    assert callback.evaluator.ran == [(PROMPTS, SINGLE_PROCESS)] * len(expected)
    assert run.loggers[0].logged == [(r.iteration, {"eval/mean@1": r.metrics["mean@1"]}) for r in callback.results]


def test_an_evaluation_is_told_how_long_the_responses_of_the_last_one_were():
    straight, first, second, other = made(1), made(1), made(1), made(1, prompts_of("others", "and", "more"))
    fit(straight, range(3))
    assert straight.evaluator.told == [None, [1.0] * 2, [2.0] * 2, [3.0] * 2]
    fit(first, range(2))
    state = first.state_dict()
    second.load_state_dict(state)
    other.load_state_dict(state)
    fit(second, range(2, 3))
    fit(other, range(2, 4))
    assert second.evaluator.told == [[3.0] * 2]
    assert other.evaluator.told == [None, [1.0] * 3, [2.0] * 3]
    del state["lengths"]  # as earlier versions
    before = made(1)
    before.load_state_dict(state)
    fit(before, range(2, 3))
    assert before.evaluator.told == [None]


def test_a_resumed_run_goes_on():
    straight, first, second = made(2), made(2), made(2)
    first.on_train_start(trainer(), None)
    for iteration in range(3):
        first.on_train_batch_end(trainer(), None, None, batch(iteration), 0)
    second.load_state_dict(first.state_dict())
    assert fit(straight, range(5)) == fit(second, range(3, 5)) == [0, 2, 4, 5]
    assert (
        second.results[:2]
        == first.results
        == [
            EvaluationResult(0, {"mean@1": 0.1}, {"": [0.5]}, first.made_of),
            EvaluationResult(2, {"mean@1": 0.2}, {"": [0.5]}, first.made_of),
        ]
    )


@pytest.mark.parametrize("changed", [{"prompts": prompts_of("first")}, {"samples": 8}])
def test_a_run_that_resumes_with_another_evaluation_begins_with_it_and_is_compared_with_that(
    changed: dict, caplog: pytest.LogCaptureFixture
):
    """A gain would else be one of the problems, or of the samples."""
    first, other, back = made(2), made(2, **changed), made(2)
    fit(first, range(3))
    other.load_state_dict(first.state_dict())
    assert fit(other, range(3, 6)) == [0, 2, 3, 3, 4, 6]
    assert [one.iteration for one in evaluation_results(trainer(callbacks=[other]))] == [3, 4, 6]
    assert caplog.messages == [
        "callbacks.evaluation or data.eval_problems is another than before the resume: figures of evaluations are "
        "compared with those of iteration 3, evaluated now"
    ]
    back.load_state_dict(other.state_dict())
    fit(back, range(6, 7))
    assert [one.iteration for one in evaluation_results(trainer(callbacks=[back]))] == [0, 2, 3, 6, 7]


def test_a_resumed_run_logs_the_evaluation_of_its_checkpoint_again():
    first, second, run = made(2), made(2), trainer()
    first.on_train_start(trainer(), None)
    for iteration in range(4):
        first.on_train_batch_end(trainer(), None, None, batch(iteration), 0)
    second.load_state_dict(first.state_dict())
    second.on_train_start(run, None)
    assert second.evaluator.ran == []
    assert run.loggers[0].logged == [(4, {"eval/mean@1": first.results[-1].metrics["mean@1"]})]


def test_without_held_out_problems_nothing_runs():
    callback = made(1, prompts=[])
    assert fit(callback, range(2)) == []
    assert callback.evaluator.ran == []


def test_benchmarks_take_the_place_of_the_datas_own_problems():
    benchmarks = {"aime24": prompts_of("a"), "amc23": prompts_of("b", "c")}
    callback = Evaluation(None, SimpleNamespace(eval_prompts=lambda: PROMPTS), Evaluator(), 0, benchmarks)
    run = trainer()
    callback.on_train_start(run, None)
    assert callback.evaluator.ran == [(own, SINGLE_PROCESS) for own in benchmarks.values()]
    assert callback.results == [
        EvaluationResult(
            0, {"aime24/mean@1": 0.1, "amc23/mean@1": 0.2}, {"aime24/": [0.5], "amc23/": [0.5]}, callback.made_of
        )
    ]
    assert run.loggers[0].logged == [(0, {"eval/aime24/mean@1": 0.1, "eval/amc23/mean@1": 0.2})]
    assert run.callback_metrics["eval/amc23/mean@1"].item() == pytest.approx(0.2)


def test_a_negative_interval_is_refused():
    with pytest.raises(SettingError, match=r"callbacks\.evaluation\.every=-1 is negative"):
        made(-1)
