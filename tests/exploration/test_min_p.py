"""min-p against its golden vector."""

import json

import pytest
import torch
from contexts import step_context
from places import ROOT

from ngrpo.errors import SettingError
from ngrpo.exploration.min_p import MinPSampling, keep_min_p

VECTOR = json.loads((ROOT / "tests/vectors.json").read_text())["min_p"]


@pytest.mark.parametrize("key", VECTOR["outputs"])
def test_golden(key: str) -> None:
    temperature, p_min = (float(part[1:]) for part in key.split("_"))
    logits = torch.tensor([VECTOR["inputs"]["logits"]], dtype=torch.float64) / temperature
    probs = keep_min_p(logits, p_min).softmax(-1)[0]
    assert (probs > 0).tolist() == VECTOR["outputs"][key]["keep"]
    assert probs.tolist() == pytest.approx(VECTOR["outputs"][key]["probs"], abs=1e-9)


def test_draws_stay_in_the_kept_set_and_nothing_is_mixed() -> None:
    rows = 500
    logits = torch.tensor([[3.0, 2.0, 1.0, 0.0, -1.0]]).repeat(rows, 1)
    step = MinPSampling(0.3).step(logits, step_context(rows))
    assert set(step.token.tolist()) == {0, 1}
    assert not step.mixed.any()
    assert step.ids.shape == (rows, 0)


def test_truncates_only_when_it_can_cut() -> None:
    assert MinPSampling(0.1).truncates
    assert not MinPSampling(0.0).truncates
    with pytest.raises(SettingError, match=r"exploration\.p_min=1\.5 .*\[0, 1\]"):
        MinPSampling(1.5)
