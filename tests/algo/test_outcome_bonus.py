import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
import torch
from over_ranks import alone
from places import ROOT

from ngrpo.algo import advantage, kl, ratio
from ngrpo.algo.aggregate import token_mean
from ngrpo.algo.clip import unclipped
from ngrpo.algo.credit import ScoredBatch
from ngrpo.algo.groups import Groups
from ngrpo.algo.outcome_bonus import Answer, DifferentAnswers, OutcomeBonus, RareAnswers, normal
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.errors import SettingError

VECTOR = json.loads((ROOT / "tests/vectors2.json").read_text())["outcome_bonus"]
ANSWERS = VECTOR["inputs"]["answers"]
GRPO = Algorithm(advantage.group_standardised, ratio.token, unclipped, token_mean, kl.k3)


def one_rank(answers: Sequence[Answer]) -> list[Sequence[Answer]]:
    return [answers]


def visited(bonus: RareAnswers) -> RareAnswers:
    bonus.load_state_dict({"visits": [(5, answer, count) for answer, count in VECTOR["inputs"]["visits"].items()]})
    return bonus


@pytest.mark.parametrize(
    ("name", "bonus"),
    [
        ("ucb", visited(RareAnswers(1.0))),
        ("ucb_mean", visited(RareAnswers(1.0, centred=True))),
        ("ucb_con", visited(RareAnswers(1.0, less=0.5))),
        ("batch", DifferentAnswers(1.0)),
    ],
)
def test_golden(name: str, bonus: OutcomeBonus) -> None:
    found = bonus([5] * len(ANSWERS), ANSWERS, one_rank)
    assert found.tolist() == pytest.approx(VECTOR["outputs"][name], abs=1e-6)


def test_a_group_of_equal_rewards_comes_alive() -> None:
    bonus = DifferentAnswers()([1] * 4, ["1", "1", "2", "3"], one_rank)
    lengths, none = torch.tensor([1, 2, 1, 1]), torch.zeros(4, dtype=torch.bool)
    rewards = torch.tensor([0.0, 0.0, 0.0, torch.nan])
    batch = ScoredBatch(Groups.of([1] * 4), rewards, none.long(), lengths, none, alone, bonus=bonus)
    found = GRPO.assign(batch).advantages[0]
    (key,) = (name for name in VECTOR["outputs"] if name.startswith("dead group"))
    a, b, c, _ = VECTOR["outputs"][key]
    assert found[:4].tolist() == pytest.approx([a, b, b, c])
    assert found[4].isnan()


def test_answers_of_all_ranks_count_from_the_next_batch_on() -> None:
    def two_ranks(answers: Sequence[Answer]) -> list[Sequence[Answer]]:
        return [answers, [(1, "4"), (2, "9")]]

    bonus = RareAnswers(1.0)
    assert bonus([1, 1, 2], ["4", "4.0", None], two_ranks).tolist() == [1.0, 1.0, 0.0]
    assert bonus([1, 2, 3], ["4", "9", "4"], one_rank).tolist() == pytest.approx([3**-0.5, 1.0, 1.0])
    resumed = RareAnswers(1.0)
    algorithm, other = replace(GRPO, bonus=bonus), replace(GRPO, bonus=resumed)
    other.load_state_dict(algorithm.state_dict())
    assert resumed.state_dict() == bonus.state_dict() != {"visits": []}
    assert resumed([1], ["4"], one_rank).tolist() == [0.5]


def test_groups_are_told_apart() -> None:
    found = DifferentAnswers(1.0)([1, 2, 1, 2], ["4", "4", "5", "4"], one_rank)
    assert found.tolist() == [0.0, -0.5, 0.0, -0.5]
    centred = visited(RareAnswers(1.0, centred=True))([5, 6, 5, 6], ["7", "7", "3", None], one_rank)
    assert centred.tolist() == pytest.approx([-1 / 3, 0.0, 1 / 3, 0.0])


@pytest.mark.parametrize(
    ("one", "other"), [("7.0", "7"), (" 70 ", "7e1"), ("x + 1", "x  +  1"), ("0.50", ".5"), ("-0", "0")]
)
def test_equal_answers_have_one_form(one: str, other: str) -> None:
    assert normal(one) == normal(other)
    assert normal("7") != normal("70")
    assert normal("nan") == "nan"


def test_numbers_of_any_size_are_answers_and_none_is_rounded_into_another() -> None:
    """Policies box what they like: a number that Python's decimals overflow at ended the training."""
    answers = ["1e9999999", "-1e9999999", "1e-9999999", "0", f"{10**40}", f"{10**40 + 1}", "1e40", f"{10**40}.0"]
    forms = [normal(answer) for answer in answers]
    assert [forms.index(form) for form in forms] == [0, 1, 2, 3, 4, 5, 4, 4]
    for bonus in (RareAnswers(1.0), DifferentAnswers(1.0)):
        assert bonus([1] * len(answers), answers, one_rank).isfinite().all()


@pytest.mark.parametrize(
    "answer", ["7", "1000", "1.5", "0.0000001", "1.5E+30", "1234567890123456789012345678", "-0.25", "1E-9"]
)
def test_usual_numbers_have_the_form_that_counts_in_checkpoints_have(answer: str) -> None:
    assert normal(answer) == str(Decimal(answer).normalize() + 0)


@pytest.mark.parametrize("make", [RareAnswers, DifferentAnswers])
def test_a_negative_weight_is_refused(make: Any) -> None:
    with pytest.raises(SettingError, match=r"algo.bonus.coef=-0.1 "):
        make(coef=-0.1)
