import pytest

from ngrpo.data.row_filter import RowFilter
from ngrpo.data.sources.problem_text import fingerprint
from ngrpo.types.problems import Excluded, Problem


def problem(question: str = "?", difficulty: float | None = None) -> Problem:
    return Problem(0, question, "1", difficulty)


@pytest.mark.parametrize(
    ("difficulty", "expected"),
    [(1.9, "too_easy"), (2.0, None), (4.0, None), (4.1, "too_hard"), (None, None)],
)
def test_bounds_are_inclusive(difficulty: float | None, expected: str | None) -> None:
    row = problem(difficulty=difficulty)
    assert RowFilter(2.0, 4.0)(row, set()) == (Excluded(expected) if expected else row)  # type: ignore[arg-type]
    assert RowFilter()(row, set()) is row


def test_the_first_of_equal_problems_stays() -> None:
    seen: set[int] = set()
    rows = [problem("1 + 1?"), problem("$1+1$"), problem("2"), problem("1 + 1")]
    row_filter = RowFilter(distinct=True)
    assert [row_filter(row, seen) for row in rows] == [rows[0], Excluded("duplicate"), rows[2], Excluded("duplicate")]
    assert seen == {fingerprint("1 + 1"), fingerprint("2")}
    assert all(RowFilter()(row, seen) is row for row in rows)


def test_a_problem_that_is_excluded_does_not_stand_for_its_double() -> None:
    seen: set[int] = set()
    row_filter = RowFilter(min_difficulty=2.0, distinct=True)
    assert row_filter(problem("a", 1.0), seen) == Excluded("too_easy")
    assert row_filter(problem("a", 3.0), seen) == problem("a", 3.0)


def test_evaluation_problems_are_excluded_whether_doubles_stay_or_not() -> None:
    evaluated = frozenset({fingerprint("1 + 1")})
    for distinct in (True, False):
        row_filter = RowFilter(evaluated=evaluated, distinct=distinct)
        assert row_filter(problem("$1 + 1$?"), set()) == Excluded("in_evaluation")
        assert row_filter(problem("2"), set()) == problem("2")
    assert row_filter(Excluded("missing_answer"), set()) == Excluded("missing_answer")
