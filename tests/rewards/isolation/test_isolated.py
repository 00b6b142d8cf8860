"""Objects in processes of their own: results, state, exceptions, hanging, dying, and what is left of them."""

import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from made_responses import responses
from omegaconf import OmegaConf

from ngrpo.errors import RunError, SettingError
from ngrpo.rewards.isolation.custom import IsolatedReward, IsolatedTerm, build_reward
from ngrpo.rewards.isolation.isolated import CallFailed, IsolatedObject
from ngrpo.rewards.terms.base import RewardTerms, WeightedTerm
from ngrpo.rewards.terms.calls import scored
from ngrpo.rewards.terms.results import WrongResult
from ngrpo.types.scores import Verdict

THREE = responses(["7", None, "8"], keys=[4, 4, 9], lengths=[2, 3, 5])
LIMIT_S = 30.0


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., IsolatedObject]]:
    """Makes objects of `isolated_objects` and ends their processes."""
    made: list[IsolatedObject] = []

    def one(target: str, limit_s: float = LIMIT_S, **arguments: Any) -> IsolatedObject:
        made.append(
            IsolatedObject("reward_terms.mine", {"_target_": f"isolated_objects.{target}", **arguments}, limit_s)
        )
        return made[-1]

    yield one
    for isolated in made:
        isolated.close()


def test_a_term_gets_the_same_responses_and_changes_in_its_process_only(make):
    summed = make("LengthsAndCalls")
    term = IsolatedTerm(summed)
    assert term(THREE).tolist() == [2.0, 3.0, 5.0]
    assert term(THREE.only(2)).tolist() == [5.0 + 1]
    assert summed(THREE)[0] == 2.0 + 2
    assert term.state_dict() == {}


def test_the_state_after_the_last_call_is_restored_in_another_process(make):
    term = IsolatedTerm(make("Counting"))
    assert term.state_dict() == {"calls": 0}
    assert [float(term(THREE)[0]) for _ in range(2)] == [1.0, 2.0]
    state = term.state_dict()
    other = IsolatedTerm(make("Counting"))
    other.load_state_dict(state)
    assert float(other(THREE)[0]) == 3.0
    assert (term.state_dict(), other.state_dict()) == ({"calls": 2}, {"calls": 3})


def test_its_next_process_is_made_before_the_next_call(make, tmp_path: Path):
    made = tmp_path / "made"
    isolated = make("Marking", file=str(made))
    isolated.restore(None)
    end = time.monotonic() + LIMIT_S
    while made.read_text() != "made\n" * 2 and time.monotonic() < end:
        time.sleep(0.05)
    assert made.read_text() == "made\n" * 2
    assert isolated(["a"]) == [1.0]
    assert made.read_text() == "made\n" * 2


def test_a_next_process_that_cannot_be_made_is_told_at_the_next_call(make, tmp_path: Path):
    folder = tmp_path / "folder"
    folder.mkdir()
    isolated = make("Marking", file=str(folder / "made"))
    (folder / "made").unlink()
    folder.rmdir()
    isolated.restore(None)
    with pytest.raises(SettingError, match=r"^reward_terms.mine cannot be built \(FileNotFoundError"):
        isolated(["a"])
    folder.mkdir()
    assert isolated(["a"]) == [1.0]


def test_an_exception_names_its_place_and_sample(make):
    terms = RewardTerms([WeightedTerm("mine", 1.0, IsolatedTerm(make("Raising", key=9)))])
    with pytest.raises(RunError) as caught:
        terms(THREE)
    assert str(caught.value) == (
        "reward_terms.mine raised KeyError('not this one') in isolated_objects.py:41 on response 2, to problem 9: "
        "'text 2'; fix it and resume with ckpt=latest."
    )


@pytest.mark.parametrize(
    ("how", "verdict", "reason"),
    [
        ("hang", Verdict.TIMEOUT, "took longer than custom_reward_timeout_s=1"),
        ("hold", Verdict.TIMEOUT, "took longer than custom_reward_timeout_s=1"),
        ("die", Verdict.CRASHED, "ended the process that it runs in"),
    ],
)
def test_a_call_that_fails_costs_its_limit_and_the_process(make, how: str, verdict: Verdict, reason: str):
    isolated = make("Failing", limit_s=1.0, how=how)
    old = int(isolated(["on"])[0])
    start = time.monotonic()
    with pytest.raises(CallFailed) as caught:
        isolated(["fail"])
    assert time.monotonic() - start < 5
    assert (caught.value.verdict, str(caught.value)) == (verdict, reason)
    assert not Path(f"/proc/{old}").exists()
    assert isolated(["on"]) != [old]


def test_a_failed_term_excludes_all_responses_and_keeps_its_state(make, caplog: pytest.LogCaptureFixture):
    term = IsolatedTerm(make("Counting", limit_s=1.0, hang_at=2))
    values = [term(THREE) for _ in range(3)]
    assert [float(value[0]) for value in values] == pytest.approx([1.0, math.nan, 2.0], nan_ok=True)
    assert values[1].isnan().all()
    assert caplog.messages == [
        "reward_terms.mine took longer than custom_reward_timeout_s=1: the rewards of 3 responses are excluded"
    ]


def test_a_reward_that_fails_has_its_verdict(make):
    reward = IsolatedReward(make("Scoring", limit_s=1.0))
    assert [score.reward for score in scored(reward, ["7", "8"], ["7", "7"], [0, 1])] == [1.0, 0.0]
    failed = scored(reward, ["hang", "8"], ["7", "7"], [0, 1])
    assert [(math.isnan(s.reward), s.correct, s.status) for s in failed] == [(True, False, Verdict.TIMEOUT)] * 2


def test_a_reward_that_declares_questions_gets_them_there_too(make):
    reward = IsolatedReward(make("ScoringQuestions"))
    scores = scored(reward, ["7", "8"], ["7", "7"], [0, 1], ["6?", "8"])
    assert [score.reward for score in scores] == [0.0, 1.0]
    reward = IsolatedReward(make("Scoring"))
    assert [score.reward for score in scored(reward, ["7", "8"], ["7", "7"], [0, 1], ["6?", "8"])] == [1.0, 0.0]


def test_three_failures_in_a_row_end_the_run_and_fewer_do_not(make):
    isolated = make("Failing", limit_s=20.0, how="die")
    with pytest.raises(CallFailed):
        isolated(["fail"])
    isolated(["on"])
    for _ in range(2):
        with pytest.raises(CallFailed):
            isolated(["fail"])
    with pytest.raises(RunError) as caught:
        isolated(["fail"])
    assert str(caught.value) == (
        "reward_terms.mine ended the process that it runs in, for the 3rd time in a row; fix it, and resume with "
        "ckpt=latest."
    )


def test_an_object_that_cannot_be_built_is_an_error_at_once():
    with pytest.raises(SettingError) as caught:
        IsolatedObject("reward_terms.mine", {"_target_": "isolated_objects.Raising", "key": "none"}, LIMIT_S)
    assert str(caught.value) == (
        "reward_terms.mine cannot be built (ValueError('no such problem') in isolated_objects.py:35); fix it."
    )


def test_a_result_that_cannot_leave_its_process_is_described_there(make):
    with pytest.raises(
        WrongResult, match=r"^returned <generator .*\(generator\), not a list with a number for each of 1"
    ):
        make("Unpicklable")(["a"])


def test_nor_a_state(make):
    with pytest.raises(
        SettingError, match=r"^reward_terms.mine has a state that cannot be saved \(cannot pickle 'gener"
    ):
        make("Unpicklable", state=True)


def test_what_cannot_be_called_is_refused_when_it_is_built():
    for limit_s in (None, LIMIT_S):
        with pytest.raises(SettingError, match=r"makes NotCallable\(\) \(NotCallable\), which cannot be called; give"):
            build_reward(
                "reward", OmegaConf.create({"_target_": "isolated_objects.NotCallable"}), limit_s, IsolatedReward
            )


def test_nothing_is_left_when_it_is_forgotten():
    isolated = IsolatedObject("reward_terms.mine", {"_target_": "isolated_objects.Failing", "how": "hang"}, LIMIT_S)
    pid = int(isolated(["on"])[0])
    assert pid != os.getpid()
    del isolated
    assert not Path(f"/proc/{pid}").exists()


def test_the_packages_own_rewards_are_not_isolated():
    own = OmegaConf.create({"_target_": "ngrpo.rewards.terms.one_box.OneBox"})
    other = OmegaConf.create({"_target_": "isolated_objects.Counting"})
    assert type(build_reward("reward_terms.mine", own, 5.0, IsolatedTerm)).__name__ == "OneBox"
    assert type(build_reward("reward_terms.mine", other, None, IsolatedTerm)).__name__ == "Counting"
    made = build_reward("reward_terms.mine", other, 5.0, IsolatedTerm)
    assert isinstance(made, IsolatedTerm)
    made.isolated.close()
    for limit_s in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(SettingError, match=r"custom_reward_timeout_s=.* is no time to answer in"):
            build_reward("reward_terms.mine", own, limit_s, IsolatedTerm)


def test_tensors_arrive_without_the_storage_they_are_a_part_of(make):
    whole = torch.zeros(10_000_000)
    assert make("StorageBytes")(whole[:2]) == [8.0, 8.0]
