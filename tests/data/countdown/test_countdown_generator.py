from collections import Counter
from itertools import islice

import pytest

from ngrpo.data.countdown.generator import NUMBERS, draw, problem, written
from ngrpo.data.countdown.levels import CountdownLevel, read_countdown_path
from ngrpo.data.countdown.solver import solutions
from ngrpo.data.sources import CountdownSource, open_source
from ngrpo.data.word_problems.levels import Split
from ngrpo.errors import SettingError
from ngrpo.rewards.answers.expression import parse
from ngrpo.rewards.countdown import reaches
from ngrpo.types.problems import Problem

LEVEL = CountdownLevel()


def numbers_of(split: Split, count: int) -> set[tuple[int, ...]]:
    return {tuple(sorted(draw(key, split, LEVEL).numbers)) for key in range(count)}


def test_known_puzzle_stays_the_same() -> None:
    puzzle = draw(0, "held_out", LEVEL)
    assert problem(0, "held_out", LEVEL) == problem(0, "held_out", LEVEL)
    assert puzzle.question == "Reach 40 with + - * / from 4, 1, 1, 1 and 7, each used once."
    assert problem(0, "held_out", LEVEL).columns == {NUMBERS: list(puzzle.numbers)}


def test_splits_share_no_numbers_in_any_order() -> None:
    train, validation, held_out = numbers_of("train", 6000), numbers_of("validation", 800), numbers_of("held_out", 800)
    assert min(len(train), len(validation), len(held_out)) > 150
    assert not train & validation
    assert not train & held_out
    assert not validation & held_out


def test_solutions_reach_the_target_by_the_steps_that_are_written() -> None:
    counts: Counter[int] = Counter()
    for key in range(500):
        puzzle = draw(key, "train", LEVEL)
        counts[len(puzzle.numbers)] += 1
        assert reaches(written(puzzle.solution), puzzle.target, puzzle.numbers)
        assert LEVEL.targets[0] <= puzzle.target <= LEVEL.targets[1]
        for step in puzzle.steps:
            left, _, right = step.partition("=")
            made = parse(left)
            assert made is not None
            assert made.value == int(right)
            assert 0 < int(right) <= LEVEL.between
        assert int(puzzle.steps[-1].partition("=")[2]) == puzzle.target
    assert set(counts) == {4, 5}
    assert min(counts.values()) > 200


def test_most_puzzles_of_four_numbers_have_several_solutions() -> None:
    level = CountdownLevel(4, 4)
    found = []
    for key in range(40):
        puzzle = draw(key, "train", level)
        all_forms = solutions(puzzle.numbers, puzzle.target)
        assert puzzle.solution.form in all_forms
        assert all(reaches(written(one), puzzle.target, puzzle.numbers) for one in all_forms.values())
        found.append(len(all_forms))
    assert sum(count >= 2 for count in found) >= 28


@pytest.mark.parametrize(
    ("numbers", "target", "count"), [((2, 3), 6, 1), ((1, 1), 2, 1), ((2, 2), 4, 2), ((1, 2, 3), 6, 3), ((5, 7), 3, 0)]
)
def test_solver_counts_forms(numbers: tuple[int, ...], target: int, count: int) -> None:
    assert len(solutions(numbers, target)) == count


def test_path_names_family_and_split() -> None:
    assert read_countdown_path("countdown", "train") == (LEVEL, "train")
    assert read_countdown_path("countdown:3-5@validation", "train") == (CountdownLevel(3, 5), "validation")
    assert read_countdown_path("countdown.json", "train") is None
    assert read_countdown_path(["countdown"], "train") is None
    source = open_source("countdown:3-3@held_out")
    assert isinstance(source, CountdownSource)
    assert source.identity == "countdown:3-3:held_out"
    rows = list(islice(source.rows(5), 2))
    assert [row.key for row in rows if isinstance(row, Problem)] == [5, 6]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("countdown:1-3", "countdown:1-3: such puzzles cannot be made; choose 2 <= least <= most <= 6 numbers."),
        ("countdown:5-4", "countdown:5-4: such puzzles"),
        ("countdown:3-4@test", "countdown:3-4@test: countdown:3-4 has the splits train, validation, held_out"),
    ],
)
def test_unknown_families_and_splits_are_refused(path: str, message: str) -> None:
    with pytest.raises(SettingError) as error:
        open_source(path)
    assert message in str(error.value)
