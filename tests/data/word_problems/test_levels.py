import random
import re
from collections import Counter

import pytest

from ngrpo.data.sources import DemoSource, open_source
from ngrpo.data.word_problems.generator import Equation, Story, draw, problem
from ngrpo.data.word_problems.levels import SHIPPED, harder, read_path
from ngrpo.demo_model.responses import gains_first
from ngrpo.errors import SettingError

HARD = harder(2, 6)


def content(key: int, split: str) -> tuple[str, tuple[str, ...]]:
    """What a story starts from and all that changes, in any order."""
    story = draw(key, split, HARD)[0]
    return story.opening, tuple(sorted(f"{one.operation}{one.right}" for one in story.changes))


def worked_out(story: Story) -> int:
    total = eval(story.opening)
    for change in story.changes:
        total += change.right if change.operation == "+" else -change.right
    return total


def test_known_harder_problem_stays_the_same() -> None:
    question = problem(0, "held_out", HARD).question
    assert question == (
        "Leo owns 5 crates with 11 coins in each. He collects 30 more. Soon he loses 9. How many coins does he have "
        "now?"
    )


def test_splits_share_no_chain_in_any_order() -> None:
    train = {content(key, "train") for key in range(4000)}
    validation = {content(key, "validation") for key in range(800)}
    held_out = {content(key, "held_out") for key in range(800)}
    assert min(len(train), len(validation), len(held_out)) > 500
    assert not train & validation
    assert not train & held_out
    assert not validation & held_out


def test_steps_are_spread_and_values_positive() -> None:
    stories = [draw(key, "train", HARD)[0] for key in range(1000)]
    steps = Counter(len(story.equations) for story in stories)
    assert sorted(steps) == [2, 3, 4, 5, 6]
    assert min(steps.values()) > 120
    for story in stories:
        assert all(equation.value > 0 for equation in story.equations)
        assert story.answer == worked_out(story)


def test_gains_first_reorders_and_keeps_the_answer() -> None:
    reordered = 0
    for key in range(300):
        story, _ = draw(key, "train", HARD)
        other = story.gains_first()
        assert (other.answer, len(other.equations)) == (story.answer, len(story.equations))
        assert Counter(map(change, other.changes)) == Counter(map(change, story.changes))
        signs = [one.operation for one in other.changes]
        assert signs == sorted(signs, key="+-".index)
        for before, after in zip(other.equations, other.equations[1:], strict=False):
            assert after.left == before.value
        written = gains_first(story, random.Random(key))
        assert re.findall(r"\(([^)]*)\)", written) == [str(equation) for equation in other.equations]
        reordered += other.equations != story.equations
    assert reordered > 100


def change(equation: Equation) -> tuple[str, int]:
    return equation.operation, equation.right


def test_a_product_alone_stays_as_it_is() -> None:
    story = Story("Anna", "she", "pens", (Equation(3, "*", 4),))
    assert story.gains_first() == story
    assert (story.opening, story.changes) == ("3*4", ())


@pytest.mark.parametrize(
    ("path", "level", "split"),
    [
        ("demo", SHIPPED, "train"),
        ("demo@held_out", SHIPPED, "held_out"),
        ("demo:2-6", HARD, "train"),
        ("demo:2-6@validation", HARD, "validation"),
    ],
)
def test_path_names_family_and_split(path: str, level: object, split: str) -> None:
    assert read_path(path, "train") == (level, split)
    source = open_source(path)
    assert isinstance(source, DemoSource)
    assert next(source.rows(3)) == problem(3, split, level)


@pytest.mark.parametrize("path", ["demo2", "demo/x", "org/demo:2-6", ["demo"], None])
def test_other_paths_are_none_of_the_demos(path: object) -> None:
    assert read_path(path, "train") is None


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("demo:0-3", "1 <= least"),
        ("demo:5-2", "1 <= least"),
        ("demo:2-10", "<= 9"),
        ("demo@validation", "train, held_out"),
        ("demo:2-6@test", "train, validation, held_out"),
    ],
)
def test_impossible_families_and_splits_are_refused(path: str, message: str) -> None:
    with pytest.raises(SettingError, match=re.escape(message)):
        open_source(path, setting="data.path")
