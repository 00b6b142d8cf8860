"""The filter of rows by content: difficulty, evaluation problems, duplicates."""

from dataclasses import dataclass

from ngrpo.data.sources import Row
from ngrpo.data.sources.problem_text import fingerprint
from ngrpo.types.problems import Excluded, Problem


@dataclass(frozen=True)
class RowFilter:
    """Excludes problems by difficulty, those that are evaluated on, and those met before.

    Attributes:
        min_difficulty: lower declared difficulties are excluded; None for no bound, as for the next.
        max_difficulty: higher ones are excluded.
        evaluated: fingerprints of the evaluation problems.
        distinct: whether a problem that was met before is excluded.
    """

    min_difficulty: float | None = None
    max_difficulty: float | None = None
    evaluated: frozenset[int] = frozenset()
    distinct: bool = False

    def __call__(self, row: Row, seen: set[int]) -> Row:
        """Return the row, or why it is excluded.

        Args:
            row: from a source.
            seen: fingerprints of the problems met before; the row's is added if it stays.
        """
        if isinstance(row, Excluded):
            return row
        return self._by_difficulty(row) or self._by_text(row, seen) or row

    def _by_difficulty(self, problem: Problem) -> Excluded | None:
        if problem.difficulty is None:
            return None
        if self.min_difficulty is not None and problem.difficulty < self.min_difficulty:
            return Excluded("too_easy")
        if self.max_difficulty is not None and problem.difficulty > self.max_difficulty:
            return Excluded("too_hard")
        return None

    def _by_text(self, problem: Problem, seen: set[int]) -> Excluded | None:
        if not self.distinct and not self.evaluated:
            return None
        found = fingerprint(problem.question)
        if found in self.evaluated:
            return Excluded("in_evaluation")
        if not self.distinct:
            return None
        if found in seen:
            return Excluded("duplicate")
        seen.add(found)
        return None
