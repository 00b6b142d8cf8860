"""The inspection of a data set: its size, lengths, difficulties and duplicates, and the rows that training excludes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ngrpo.data.datamodule import PromptDataModule
from ngrpo.data.prompt_source import PromptSource
from ngrpo.data.sources import ProblemSource
from ngrpo.data.sources.problem_text import fingerprint
from ngrpo.types.problems import Problem, Prompt

ENDLESS_ROWS = 10_000
"""Rows looked at of a source that never ends."""

QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
_BINS = 10


@dataclass(frozen=True)
class Double:
    """A row whose question stands elsewhere too, by normalised text.

    Attributes:
        row: its number.
        of: where the question was first, e.g. ``data row 7``.
        question: its text.
        same_answer: whether both rows have the same answer, as text.
    """

    row: int
    of: str
    question: str
    same_answer: bool


@dataclass(frozen=True)
class Inspection:
    """One source.

    Attributes:
        identity: names the data.
        rows: rows looked at.
        usable: those that training takes with the settings as they are.
        excluded: the others, by reason.
        control_text: usable ones whose question holds the text of control tokens, which is encoded as text.
        prompt_tokens: quantiles of the usable prompts' lengths, by name ("50%"); empty without any.
        difficulties: problems by declared difficulty, in order; "none" for those that declare none.
        duplicates: every row of a problem but the first, whether excluded or kept.
        overlap: problems that are in the evaluation data, likewise.
    """

    identity: str
    rows: int
    usable: int
    excluded: dict[str, int]
    control_text: int
    prompt_tokens: dict[str, int]
    difficulties: dict[str, int]
    duplicates: list[Double]
    overlap: list[Double]


Place = tuple[str, str]
"""Where a question stands, and the answer there."""


def inspect(data: PromptDataModule, rows: int | None = None) -> dict[str, Inspection]:
    """Go through all training sources.

    Args:
        data: with its sources open.
        rows: the most rows to look at of each; None for all, and `ENDLESS_ROWS` of what never ends.

    Returns:
        By where the source's settings stand: ``data``, or ``data.sources.<name>``.
    """
    evaluated = _places(data.eval_source)
    met: dict[int, Place] = {}
    return {where: _inspect(where, source, rows, evaluated, met) for where, source in data.sources.items()}


def _inspect(
    where: str, source: PromptSource, rows: int | None, evaluated: Mapping[int, Place], met: dict[int, Place]
) -> Inspection:
    limit = ENDLESS_ROWS if rows is None and source.source.endless else rows
    pairs = list(islice(source.items(), limit))
    lengths = [len(item.ids) for _, item in pairs if isinstance(item, Prompt)]
    problems = [row for row, _ in pairs if isinstance(row, Problem)]
    return Inspection(
        identity=source.identity,
        rows=len(pairs),
        usable=len(lengths),
        excluded=dict(Counter(item.reason for _, item in pairs if not isinstance(item, Prompt)).most_common()),
        control_text=source.control_text,
        prompt_tokens=quantiles(lengths),
        difficulties=histogram([problem.difficulty for problem in problems]),
        duplicates=_doubles(problems, met, where),
        overlap=[double for problem in problems if (double := _double(problem, evaluated))],
    )


def _places(source: ProblemSource | None) -> dict[int, Place]:
    """Return where each question of the evaluation data stands; nothing where it never ends."""
    found: dict[int, Place] = {}
    if source is not None and not source.endless:
        _doubles((row for row in source.rows() if isinstance(row, Problem)), found, "evaluation")
    return found


def _doubles(problems: Iterable[Problem], met: dict[int, Place], where: str) -> list[Double]:
    """Return the problems that were met before; the others are added to ``met``."""
    found = []
    for problem in problems:
        if double := _double(problem, met):
            found.append(double)
        else:
            met[fingerprint(problem.question)] = (f"{where} row {problem.key}", problem.answer)
    return found


def _double(problem: Problem, places: Mapping[int, Place]) -> Double | None:
    place = places.get(fingerprint(problem.question))
    return place and Double(problem.key, place[0], problem.question, place[1] == problem.answer)


def quantiles(lengths: Sequence[int]) -> dict[str, int]:
    """Return `QUANTILES` of some numbers, each one of them (the next higher in rank)."""
    if not lengths:
        return {}
    values = np.quantile(np.asarray(lengths), QUANTILES, method="higher")
    return {f"{share:z.0%}": int(value) for share, value in zip(QUANTILES, values, strict=True)}


def histogram(difficulties: Sequence[float | None]) -> dict[str, int]:
    """Count difficulties: value by value where there are at most twice ten, else in ten equal intervals."""
    declared = [value for value in difficulties if value is not None]
    counts = Counter(declared)
    if len(counts) <= 2 * _BINS:
        named = {f"{value:g}": counts[value] for value in sorted(counts)}
    else:
        numbers, edges = np.histogram(declared, bins=_BINS)
        named = {f"{low:g} to {high:g}": int(n) for n, low, high in zip(numbers, edges, edges[1:], strict=False)}
    undeclared = len(difficulties) - len(declared)
    return named | ({"none": undeclared} if undeclared else {})
