"""Weights, names, state and faults of reward terms."""

import math
from dataclasses import replace

import pytest
import torch
from made_responses import responses
from torch import Tensor

from ngrpo.errors import RunError, SettingError
from ngrpo.rewards.terms.base import Responses, RewardTerms, WeightedTerm
from ngrpo.rewards.terms.count_bonus import CountBonus
from ngrpo.types.scores import Verdict

THREE = responses(["7", None, "8"], keys=[4, 4, 9], lengths=[2, 3, 5])


def lengths(seen: Responses) -> Tensor:
    return torch.tensor([rollout.length for rollout in seen.rollouts])


def fails_on_long(seen: Responses) -> Tensor:
    """The third of `THREE` is the culprit."""
    if (lengths(seen) > 4).any():
        raise KeyError("too long")
    return lengths(seen)


def test_terms_are_weighted_and_named():
    terms = RewardTerms([WeightedTerm("long", -0.5, lengths), WeightedTerm("one", 2.0, lambda s: torch.ones(len(s)))])
    values = terms(THREE)
    assert {name: value.tolist() for name, value in values.items()} == {"long": [-1.0, -1.5, -2.5], "one": [2.0] * 3}
    assert all(value.dtype == torch.float64 for value in values.values())


def test_nan_leaves_a_response_out():
    (values,) = RewardTerms([WeightedTerm("t", 1.0, lambda s: torch.tensor([1.0, math.nan, 2.0]))])(THREE).values()
    assert values.isnan().tolist() == [False, True, False]


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_the_first_nan_of_each_term_is_told(caplog: pytest.LogCaptureFixture):
    def never(seen: Responses) -> Tensor:
        return torch.tensor([0.0, math.nan, math.nan])

    terms = RewardTerms([WeightedTerm("one", 1.0, never), WeightedTerm("other", 0.0, never)])
    terms(THREE)
    terms(THREE)
    assert told(caplog) == [
        f"reward_terms.{name} returned nan on response 1, to problem 4: 'text 1'; such responses are excluded from the "
        "loss and from their group's statistics, reward/left_out tells how many: let it return a number for each if "
        "that is not meant"
        for name in ("one", "other")
    ]


def test_a_nan_of_the_reward_itself_is_told_unless_its_verdict_says_why(caplog: pytest.LogCaptureFixture):
    spoiled = [replace(THREE.scores[0], reward=math.nan, status=status) for status in Verdict]
    for score in spoiled:
        RewardTerms([])(replace(THREE, scores=[*THREE.scores[:2], score]))
    assert len(told(caplog)) == len(Verdict) - 1
    assert all(line.startswith("reward returned nan on response 2, to problem 9") for line in told(caplog))
    RewardTerms([])(THREE)
    assert len(told(caplog)) == len(Verdict) - 1


def test_a_term_that_raises_names_the_sample():
    with pytest.raises(RunError) as caught:
        RewardTerms([WeightedTerm("mine", 1.0, fails_on_long)])(THREE)
    line = fails_on_long.__code__.co_firstlineno + 3
    assert str(caught.value) == (
        f"reward_terms.mine raised KeyError('too long') in test_terms.py:{line} on response 2, to problem 9: 'text 2'; "
        "fix it and resume with ckpt=latest."
    )
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_term_that_raises_on_no_sample_alone_says_so():
    with pytest.raises(RunError, match="on all responses together, on none alone"):
        WeightedTerm("mine", 1.0, lambda seen: lengths(seen) if len(seen) == 1 else lengths(seen)[5]).weighted(THREE)


@pytest.mark.parametrize("values", [torch.ones(3, 1), torch.ones(2), torch.tensor(1.0)])
def test_a_wrong_shape_is_named(values: Tensor):
    with pytest.raises(RunError, match=r"reward_terms\.mine returned shape \(.*\), not one value for each of 3"):
        WeightedTerm("mine", 1.0, lambda seen: values).weighted(THREE)


@pytest.mark.parametrize("name", ["correctness", "correct", "no_answer", "left_out"])
def test_names_of_other_figures_are_refused(name: str):
    with pytest.raises(SettingError, match=rf"reward_terms\.{name} .*reward/{name}"):
        WeightedTerm(name, 1.0, lengths)


def test_only_stateful_terms_are_saved():
    terms = [WeightedTerm("count", 1.0, CountBonus()), WeightedTerm("long", 1.0, lengths)]
    straight = RewardTerms(terms)
    straight(THREE)
    state = straight.state_dict()
    assert state.keys() == {"count"}
    resumed = RewardTerms([WeightedTerm("count", 1.0, CountBonus())])
    resumed.load_state_dict(state)
    assert resumed(THREE)["count"].tolist() == pytest.approx([2**-0.5, 0.0, 2**-0.5])
    RewardTerms([WeightedTerm("count", 1.0, CountBonus())]).load_state_dict({})
