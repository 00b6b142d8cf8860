import json
import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from places import ROOT

from ngrpo.algo import advantage, kl, ratio
from ngrpo.algo.adaptive_entropy import AdaptiveEntropy
from ngrpo.algo.aggregate import BatchTotals, seq_mean_token_mean
from ngrpo.algo.clip import clipped_surrogate
from ngrpo.algo.loss_terms import LossInputs
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.errors import SettingError

VECTOR = json.loads((ROOT / "tests/vectors2.json").read_text())["adaptive_entropy"]
GRPO = Algorithm(advantage.raw, ratio.token, partial(clipped_surrogate, low=0.2, high=0.2), seq_mean_token_mean, kl.k3)


def test_golden_coefficients() -> None:
    given = VECTOR["inputs"]
    found = AdaptiveEntropy(given["target"], given["delta"], given["min"], given["max"])
    rows = []
    for entropy in given["entropy"]:
        applied = found.weight
        found.update(entropy)
        rows.append([applied, found.coefficient, float(entropy <= given["target"])])
    expected = [value for row in VECTOR["outputs"]["applied, c_after, on_after"] for value in row]
    assert [value for row in rows for value in row] == pytest.approx(expected, abs=1e-12)


def test_the_state_goes_on_and_nothing_is_learned_from_nothing() -> None:
    one, other = AdaptiveEntropy(), AdaptiveEntropy()
    for entropy in (0.1, 0.15, math.nan, math.inf):
        one.update(entropy)
    assert (one.coefficient, one.last) == (0.01, 0.15)
    algorithm, resumed = replace(GRPO, adaptive_entropy=one), replace(GRPO, adaptive_entropy=other)
    resumed.load_state_dict(algorithm.state_dict())
    assert resumed.entropy_weight == algorithm.entropy_weight == 0.01
    assert GRPO.state_dict() == {}
    resumed.load_state_dict({})
    assert resumed.entropy_weight == 0.01


def test_the_loss_has_the_bonus_of_the_moment() -> None:
    adaptive = AdaptiveEntropy(target=1.0, delta=0.3)
    algorithm = replace(GRPO, adaptive_entropy=adaptive)
    values = -torch.rand(5, 8, generator=torch.Generator().manual_seed(0))
    entropy = values[4].neg().requires_grad_()
    batch = LossInputs(*values[:4], entropy, torch.ones(1, 8), torch.tensor([3, 5]))
    totals = BatchTotals(2, 8)
    assert (
        not algorithm.loss(batch, totals).loss.requires_grad
        or not torch.autograd.grad(algorithm.loss(batch, totals).loss, entropy)[0].any()
    )
    adaptive.update(0.5)
    found = algorithm.loss(batch, totals).loss
    expected = replace(GRPO, entropy_coef=0.3).loss(batch, totals).loss
    assert found.item() == expected.item()
    assert torch.equal(torch.autograd.grad(found, entropy)[0], torch.autograd.grad(expected, entropy)[0])


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"delta": 0.0}, "delta=0.0"), ({"low": 0.5, "high": 0.1}, "low=0.5"), ({"low": -0.1}, "low=-0.1")],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, float], words: str) -> None:
    with pytest.raises(SettingError, match=f"algo.adaptive_entropy.{words}"):
        AdaptiveEntropy(**settings)
    with pytest.raises(SettingError, match="algo.entropy_coef=0.1 is a constant"):
        replace(GRPO, entropy_coef=0.1, adaptive_entropy=AdaptiveEntropy())
