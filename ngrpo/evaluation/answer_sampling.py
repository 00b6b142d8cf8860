"""The sampling of a benchmark's missing answers, stored as problems finish."""

from collections.abc import Iterator, Sequence

from ngrpo.evaluation.answer_store import AnswerStore
from ngrpo.evaluation.answer_table import rows_of
from ngrpo.evaluation.evaluator import Evaluator
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.types.problems import Prompt


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
        store.add(rows_of(made, worker.seed))
