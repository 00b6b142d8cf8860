"""The metrics of a finished run, computed from its stored answers and its record."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from ngrpo.evaluation.answer_table import NO_VOTE, answers_of
from ngrpo.evaluation.estimators import majority_at_k
from ngrpo.evaluation.ks import powers_of_two
from ngrpo.evaluation.solution_paths import normaliser
from ngrpo.report.run_store import RunStore
from ngrpo.study.definition import DiversityConfig
from ngrpo.study.rarefaction import expected_distinct
from ngrpo.study.results import AnswerStatistics

CURVES = (
    "train/reward",
    "train/mean@1",
    "train/zero_signal",
    "train/distinct_answers",
    "train/distinct_paths",
    "policy/entropy",
    "rollout/length_mean",
    "rollout/generated_tokens",
    "rollout/tokens_per_s",
    "exploration/gated_fraction",
    "exploration/cosine_mean",
    "exploration/cosine_min",
    "time/generate_s",
    "time/update_s",
)
"""Metrics whose values are kept of every iteration, where a run has them."""


def answer_statistics(table: pa.Table, diversity: DiversityConfig) -> AnswerStatistics:
    """Returns the statistics of a model's stored answers.

    Args:
        table: of `ngrpo.evaluation.answer_table.SCHEMA`, whole problems; those without a usable reference are excluded.
        diversity: how it is counted.
    """
    table = table.sort_by([("problem", "ascending"), ("sample", "ascending")])
    answers = answers_of(table)
    n = answers.samples
    texts = table["text"].to_pylist()
    problems = [
        _Problem(right, votes, texts[index * n : (index + 1) * n])
        for index, (right, votes, usable) in enumerate(
            zip(answers.correct.tolist(), answers.votes.tolist(), answers.usable.tolist(), strict=True)
        )
        if usable
    ]
    usable = answers.chosen(answers.usable)
    ks = [k for k in powers_of_two(n) if k > 1]
    majority = {str(k): float(majority_at_k(usable.votes, usable.correct, k).mean()) for k in ks}
    path_of, group, alike = normaliser(diversity.path), diversity.group, diversity.alike
    return AnswerStatistics(
        samples=n,
        right=[sum(problem.right) for problem in problems],
        majority={k: round(value, 6) for k, value in majority.items()},
        answers=_each(problems, lambda one: expected_distinct(one.answers(), group)),
        paths=_each(problems, lambda one: expected_distinct(one.paths(path_of), group)),
        wrong_answers=_each(problems, lambda one: expected_distinct(one.answers(right=False), alike)),
        right_paths=_each(problems, lambda one: expected_distinct(one.paths(path_of, right=True), alike)),
        length=round(float(usable.length.double().mean()), 3),
        truncated=round(float(usable.truncated.double().mean()), 5),
        solutions=[len(set(problem.paths(path_of, right=True))) for problem in problems],
    )


class _Problem:
    """The n samples of a problem."""

    def __init__(self, right: Sequence[bool], votes: Sequence[int], texts: Sequence[str]) -> None:
        self.right = right
        self.votes = votes
        self.texts = texts

    def answers(self, right: bool | None = None) -> list[int | None]:
        """Returns the final answers of all samples, or of the right or wrong ones; None for no answer."""
        chosen = zip(self.votes, self.right, strict=True)
        return [None if vote == NO_VOTE else vote for vote, is_right in chosen if right in (None, is_right)]

    def paths(self, path_of: Callable[[str], str], right: bool | None = None) -> list[str]:
        """Returns the solution paths of all samples, or of the right or wrong ones."""
        chosen = zip(self.texts, self.right, strict=True)
        return [path_of(text) for text, is_right in chosen if right in (None, is_right)]


def _each(problems: Sequence[_Problem], figure: Callable[[_Problem], float | None]) -> list[float | None]:
    values = [figure(problem) for problem in problems]
    return [None if value is None else round(value, 3) for value in values]


def curves(run_dir: Path) -> dict[str, list[float]]:
    """Returns the kept metrics of a training, those that every iteration has; five digits."""
    metrics = [record.metrics for record in RunStore(run_dir).iterations()]
    names = [name for name in CURVES if metrics and all(name in one for one in metrics)]
    return {name: [float(f"{one[name]:.5g}") for one in metrics] for name in names}
