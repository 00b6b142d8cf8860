import json
import math
from typing import Any

import pytest
import torch
from over_ranks import alone, in_ranks
from places import ROOT

from ngrpo.algo.advantage import group_standardised
from ngrpo.algo.consistency import ConsistencyBlend, across_prompts, answer_entropy
from ngrpo.algo.credit import ScoredBatch
from ngrpo.algo.groups import Groups
from ngrpo.errors import SettingError

VECTOR = json.loads((ROOT / "tests/vectors.json").read_text())["copo"]
REWARDS = torch.tensor(VECTOR["inputs"]["rewards"], dtype=torch.float64)
ANSWERS = torch.tensor([[sorted(set(row)).index(answer) for answer in row] for row in VECTOR["inputs"]["outcomes"]])
NAN = math.nan


def blend(rewards: torch.Tensor, answers: torch.Tensor, reduce: Any = alone, **settings: Any) -> torch.Tensor:
    """Both channels for [P, G] responses of one token each; [2, P, G]."""
    count, size = rewards.shape
    keys = [row for row in range(count) for _ in range(size)]
    lengths = torch.ones(count * size, dtype=torch.int64)
    batch = ScoredBatch(Groups.of(keys), rewards.flatten(), answers.flatten(), lengths, lengths < 0, reduce)
    advantages = group_standardised(rewards).flatten()
    return ConsistencyBlend(**settings)(batch, advantages, lengths * 0.0).advantages.view(2, count, size)


@pytest.mark.parametrize(("unit", "key"), [("nats", "nat"), ("bits", "bits")])
def test_golden(unit: str, key: str) -> None:
    gamma, rho = VECTOR["inputs"]["gamma"], VECTOR["inputs"]["rho"]
    local, between = blend(REWARDS, ANSWERS, unit=unit, gamma=gamma, rho=rho)
    counted = torch.ones_like(ANSWERS, dtype=torch.bool)
    entropy = answer_entropy(ANSWERS, counted) / {"nats": 1, "bits": math.log(2)}[unit]
    for row, expected in enumerate(VECTOR["outputs"][key]):
        weight = expected["w_local"]
        assert entropy[row].item() == pytest.approx(expected["H"], abs=1e-9)
        assert local[row].tolist() == pytest.approx([weight * a for a in expected["A_local"]], abs=1e-9)
        assert between[row].tolist() == pytest.approx([(1 - weight) * expected["A_global"]] * 6, abs=1e-9)


def test_unscored_responses_have_no_answer_and_no_weight() -> None:
    rewards = torch.tensor([[1.0, 0.0, NAN, 0.0], [1.0, 1.0, 0.0, 1.0], [NAN] * 4])
    answers = torch.tensor([[1, 2, 2, 2], [1, 1, 2, 1], [1, 2, 3, 4]])
    found = blend(rewards, answers)
    assert torch.equal(found.isnan(), rewards.isnan().expand(2, -1, -1))
    expected = blend(rewards[:1, [0, 1, 3]], answers[:1, [0, 1, 3]])[0, 0]
    assert not torch.allclose(expected, blend(rewards[:1, [0, 1, 3]], torch.tensor([[1, 2, 3]]))[0, 0])
    torch.testing.assert_close(found[0, 0, [0, 1, 3]], expected)
    torch.testing.assert_close(found[:, :2], blend(rewards[:2], answers[:2]), equal_nan=True)


def test_prompts_are_compared_over_all_ranks() -> None:
    whole = blend(REWARDS, ANSWERS)
    parts = in_ranks(lambda rows, reduce: blend(REWARDS[rows], ANSWERS[rows], reduce), [slice(0, 1), slice(1, 4)])
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)


@pytest.mark.parametrize("means", [[0.3], [0.9, 0.9, 0.9], [0.9, NAN, 0.9]])
def test_one_prompt_or_equal_ones_have_nothing_to_be_compared_with(means: list[float]) -> None:
    found = across_prompts(torch.tensor(means), alone, 1e-6)
    assert found.tolist() == pytest.approx([0.0 * m for m in means], abs=0, nan_ok=True)


def test_a_group_that_agrees_on_a_wrong_answer_is_pushed_away_from_it() -> None:
    _, between = blend(REWARDS, ANSWERS)
    assert (between[1] < 0).all()
    assert (group_standardised(REWARDS)[1] == 0).all()


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(SettingError, match=r"algo.credit.unit=bans .*nats, bits"):
        ConsistencyBlend(unit="bans")
