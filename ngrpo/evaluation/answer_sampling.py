"""The sampling of a benchmark's missing answers, stored as problems finish."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ngrpo.evaluation.answer_store import AnswerStore
from ngrpo.evaluation.answer_table import rows_of
from ngrpo.evaluation.evaluator import Evaluator
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.types.problems import Prompt

Waiting = Mapping[Path, Sequence[Prompt]]
"""Prompts without an answer, by the folder of their benchmark's answers."""

Report = Callable[[str, int], None]
"""Is told a benchmark, and how many more of its problems have been answered."""


def missing(prompts: Sequence[Prompt], store: AnswerStore) -> list[Prompt]:
    """Returns the prompts of the problems that have no answers yet."""
    finished = store.finished()
    return [prompt for prompt in prompts if prompt.problem.key not in finished]


def collect(
    prompts: Sequence[Prompt], evaluator: Evaluator, worker: RolloutWorker, store: AnswerStore, at_once: int
) -> Iterator[int]:
    """Answers ``prompts`` and stores them, ``at_once`` problems at a time; yields how many are done, from 0 on.

    A rollout depends on its prompt, key, weights and settings alone, so the answers are those of an evaluation that
    was never interrupted, whatever ``at_once`` is.
    """
    for start in range(0, len(prompts), at_once):
        yield start
        chosen = list(prompts[start : start + at_once])
        made = worker.evaluate(chosen, evaluator.samples, evaluator.exploration, evaluator.temperature)
        assert made is not None  # some were chosen
        store.add(rows_of(made, worker.seed))


def answer_all(waiting: Waiting, evaluator: Evaluator, worker: RolloutWorker, at_once: int, report: Report) -> None:
    """Answers all that is waiting, as `collect` does."""
    for folder, prompts in waiting.items():
        before = 0
        for done in collect(prompts, evaluator, worker, AnswerStore(folder), at_once):
            report(folder.name, done - before)
            before = done
        report(folder.name, len(prompts) - before)
