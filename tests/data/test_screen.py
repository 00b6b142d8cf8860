import pytest

from ngrpo.data.screen import Screen
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
    assert Screen(2.0, 4.0)(row, set()) == (Excluded(expected) if expected else row)  # type: ignore[arg-type]
    assert Screen()(row, set()) is row


def test_the_first_of_equal_problems_stays() -> None:
    seen: set[int] = set()
    rows = [problem("1 + 1?"), problem("$1+1$"), problem("2"), problem("1 + 1")]
    screen = Screen(distinct=True)
    assert [screen(row, seen) for row in rows] == [rows[0], Excluded("duplicate"), rows[2], Excluded("duplicate")]
    assert seen == {fingerprint("1 + 1"), fingerprint("2")}
    assert all(Screen()(row, seen) is row for row in rows)


def test_a_problem_that_is_left_out_does_not_stand_for_its_double() -> None:
    seen: set[int] = set()
    screen = Screen(min_difficulty=2.0, distinct=True)
    assert screen(problem("a", 1.0), seen) == Excluded("too_easy")
    assert screen(problem("a", 3.0), seen) == problem("a", 3.0)


def test_evaluation_problems_are_left_out_whether_doubles_stay_or_not() -> None:
    evaluated = frozenset({fingerprint("1 + 1")})
    for distinct in (True, False):
        screen = Screen(evaluated=evaluated, distinct=distinct)
        assert screen(problem("$1 + 1$?"), set()) == Excluded("in_evaluation")
        assert screen(problem("2"), set()) == problem("2")
    assert screen(Excluded("missing_answer"), set()) == Excluded("missing_answer")
