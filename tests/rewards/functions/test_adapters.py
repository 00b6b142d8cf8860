"""Reward functions as rewards and terms, in this process and in their own: columns, async, state, errors."""

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from made_responses import responses
from omegaconf import OmegaConf
from reward_functions import brevity

from ngrpo.errors import RunError
from ngrpo.rewards.functions.columns import columns_of, takes_columns
from ngrpo.rewards.isolation.custom import IsolatedReward, IsolatedTerm, build_reward
from ngrpo.rewards.terms.base import Responses, RewardTerms, WeightedTerm
from ngrpo.rewards.terms.calls import scored
from ngrpo.types.problems import Problem

ASKED = {"role": "user", "content": "2 + 2?"}
PROBLEMS = [
    Problem(0, "1 + 1?", "2", columns={"level": 3, "topic": "sum"}),
    Problem(1, "2 + 2?", "4", messages=(ASKED,), columns={"level": 5}),
]
TEXTS = ["it is 2", "it is 5"]


@pytest.fixture
def make() -> Iterator[Callable[..., Any]]:
    """Builds rewards and terms of `reward_functions`, and ends their processes."""
    made = []

    def one(target: str, kind: Any = IsolatedReward, limit_s: float | None = 30.0, **settings: Any) -> Any:
        node = OmegaConf.create({"_target_": f"reward_functions.{target}", **settings})
        made.append(build_reward("reward", node, limit_s, kind))
        return made[-1]

    yield one
    for part in made:
        part = getattr(part, "isolated", part)
        getattr(part, "close", lambda: None)()


def rewards(reward: Any) -> list[float]:
    answers, keys = [one.answer for one in PROBLEMS], [one.key for one in PROBLEMS]
    columns = {"completions": TEXTS, **columns_of(PROBLEMS)}
    return [score.reward for score in scored(reward, TEXTS, answers, keys, None, columns)]


@pytest.mark.parametrize("limit_s", [None, 30.0])
def test_a_function_gets_the_columns_that_it_names(make: Callable[..., Any], limit_s: float | None) -> None:
    assert rewards(make("by_level", limit_s=limit_s)) == [3.0, 0.0]
    assert rewards(make("brevity", limit_s=limit_s, longest=14)) == [0.5, 0.5]
    assert rewards(make("all_columns", limit_s=None)) == [5.0, 5.0]  # prompts, questions, answer, level, topic


def test_columns_are_messages_or_questions_and_none_where_a_row_has_none() -> None:
    assert columns_of(PROBLEMS) == {
        "prompts": ["1 + 1?", [ASKED]],
        "questions": ["1 + 1?", "2 + 2?"],
        "level": [3, 5],
        "topic": ["sum", None],
    }


def test_what_takes_columns() -> None:
    assert takes_columns(brevity)
    assert not takes_columns(lambda responses, references: [])
    assert not takes_columns(min)


def test_an_async_function_is_awaited_all_responses_at_once(make: Callable[..., Any]) -> None:
    assert rewards(make("awaited", limit_s=None)) == [1.0, 0.0]
    assert rewards(make("awaited")) == [1.0, 0.0]


def test_a_function_has_a_process_of_its_own(make: Callable[..., Any]) -> None:
    (pid, _) = rewards(make("returning", what="process"))
    assert pid != os.getpid()
    assert rewards(make("returning", limit_s=None, what="process"))[0] == os.getpid()


def test_its_own_traceback_is_shown_without_that_of_the_program(
    make: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    for limit_s in (30.0, None):
        caplog.clear()
        with pytest.raises(RunError, match=r"reward raised KeyError\('it is 2'\) in reward_functions.py:\d+ on resp"):
            rewards(make("buggy", limit_s=limit_s))
        (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
        shown = record.getMessage()
        assert shown.startswith("Traceback (most recent call last):")
        assert shown.endswith("KeyError: 'it is 2'")
        assert "in buggy" in shown
        assert "in helper" in shown
        assert '{"a": 1.0}[text]' in shown
        assert "adapters.py" not in shown


def term_values(*terms: WeightedTerm) -> dict[str, list[float]]:
    made = responses(["7", "8"], keys=[0, 1], texts=["<think>it is 2", "<think>it is 5"])
    whole = Responses(PROBLEMS, made.rollouts, made.texts, made.scores, TEXTS)
    return {name: values.tolist() for name, values in RewardTerms(terms)(whole).items()}


@pytest.mark.parametrize("limit_s", [None, 30.0])
def test_a_function_is_a_term_too(make: Callable[..., Any], limit_s: float | None) -> None:
    terms = [
        WeightedTerm("short", 2.0, make("brevity", IsolatedTerm, limit_s, longest=14)),
        WeightedTerm("level", 0.5, make("by_level", IsolatedTerm, limit_s)),
    ]
    assert term_values(*terms) == {"short": [1.0, 1.0], "level": [1.5, 0.0]}


def test_terms_in_processes_of_their_own_run_at_the_same_time(make: Callable[..., Any]) -> None:
    terms = [WeightedTerm(name, 1.0, make("slow", IsolatedTerm)) for name in ("one", "two")]
    started = term_values(*terms)
    assert abs(started["one"][0] - started["two"][0]) < 0.9


@pytest.mark.parametrize("limit_s", [None, 30.0])
def test_state_is_that_of_the_object(make: Callable[..., Any], limit_s: float | None) -> None:
    term = make("Counted", IsolatedTerm, limit_s, start=4)
    assert term_values(WeightedTerm("calls", 1.0, term)) == {"calls": [5.0, 5.0]}
    assert term.state_dict() == {"calls": 5}
    term.load_state_dict({"calls": 7})
    assert term_values(WeightedTerm("calls", 1.0, term)) == {"calls": [8.0, 8.0]}


def test_bounds_are_those_of_the_object(make: Callable[..., Any]) -> None:
    assert make("Counted", limit_s=None).bounds == (0.0, 9.0)
    assert make("brevity", limit_s=None).bounds is None


def test_a_wrong_result_is_a_sentence(make: Callable[..., Any]) -> None:
    with pytest.raises(RunError, match=r"^reward returned None, not a list .* 2 responses; let it return one for each"):
        rewards(make("returning", what="nothing"))
    with pytest.raises(RunError, match=r"^reward_terms.mine returned 1 scores for 2 responses; let"):
        term_values(WeightedTerm("mine", 1.0, make("returning", IsolatedTerm, what="too few")))


@pytest.mark.parametrize("limit_s", [None, 30.0])
def test_functions_that_collect_their_arguments_are_called_as_rewards(
    make: Callable[..., Any], limit_s: float | None
) -> None:
    assert rewards(make("decorated", limit_s=limit_s)) == [5.0, 5.0]
    assert rewards(make("collecting", limit_s=limit_s)) == [7.0, 7.0]
    assert rewards(make("pairs_by_position", limit_s=limit_s)) == [1.0, 0.0]
    collecting = make("collecting", IsolatedTerm, limit_s)
    assert term_values(WeightedTerm("mine", 1.0, collecting)) == {"mine": [7.0, 7.0]}


@pytest.mark.parametrize("limit_s", [None, 30.0])
def test_what_a_reward_changes_in_place_is_its_own(make: Callable[..., Any], limit_s: float | None) -> None:
    asked = [replace(one, columns={"tests": ["a", "b"]}) for one in PROBLEMS]
    texts, answers, completions = list(TEXTS), [one.answer for one in asked], list(TEXTS)
    for name in ("emptying", "emptying_pairs"):
        columns = {"completions": completions, **columns_of(asked)}
        scores = scored(make(name, limit_s=limit_s), texts, answers, [0, 1], None, columns)
        assert [score.reward for score in scores] == [1.0, 0.0]
        assert (texts, answers, completions) == (TEXTS, ["2", "4"], TEXTS)
        assert columns["prompts"] == ["1 + 1?", [ASKED]]
        assert all(one.columns == {"tests": ["a", "b"]} for one in asked)


@pytest.mark.parametrize("limit_s", [None, 30.0])
def test_what_a_term_changes_in_place_is_its_own(make: Callable[..., Any], limit_s: float | None) -> None:
    made = responses(["7", "8"], keys=[0, 1], texts=list(TEXTS))
    whole = Responses(list(PROBLEMS), made.rollouts, made.texts, made.scores, list(TEXTS))
    for name, values in {"emptying": [1.0, 0.0], "emptying_term": [7.0, 7.0]}.items():
        term = WeightedTerm("mine", 1.0, make(name, IsolatedTerm, limit_s))
        assert term.weighted(whole).tolist() == values
        assert (whole.texts, whole.completions, whole.problems) == (TEXTS, TEXTS, PROBLEMS)


@pytest.mark.parametrize("limit_s", [None, 30.0])
def test_a_call_that_fails_in_hydras_wrapper_has_no_place_nor_traceback(
    make: Callable[..., Any], limit_s: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RunError, match=r"^reward raised TypeError\(.* positional argument but 2 were given.\) on resp"):
        rewards(make("one_of", limit_s=limit_s))
    assert not [one for one in caplog.records if one.levelno == logging.ERROR]
