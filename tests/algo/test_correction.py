import json
import math

import pytest
import torch
from places import ROOT

from ngrpo.algo.correction import Mask, NoCorrection, Reject, RolloutCorrection, Truncate
from ngrpo.errors import SettingError

VECTOR = json.loads((ROOT / "tests/vectors.json").read_text())["tis"]
OUTPUTS = VECTOR["outputs"]
TRAINER, ENGINE = (torch.tensor(VECTOR["inputs"][k], dtype=torch.float64) for k in ("logp_trainer_old", "logp_rollout"))
LOG_WEIGHT = TRAINER - ENGINE
ONE = torch.tensor([5])


@pytest.mark.parametrize(
    ("correction", "expected"),
    [
        (Truncate("token", cap=math.inf), OUTPUTS["ratio"]),
        (Truncate("token", cap=2.0), OUTPUTS["tis_token"]),
        (Mask("token", cap=2.0), OUTPUTS["mis_token (drop above C)"]),
        (Truncate("sequence", cap=math.inf), [OUTPUTS["seq_product"]] * 5),
        (Truncate("sequence", cap=2.0), [OUTPUTS["tis_seq"]] * 5),
        (Truncate("geometric", cap=2.0), [OUTPUTS["seq_geomean"]] * 5),
        (NoCorrection(), [1.0] * 5),
    ],
    ids=str,
)
def test_golden(correction: Truncate, expected: list[float]) -> None:
    assert correction(LOG_WEIGHT, ONE).weight.tolist() == pytest.approx(expected, abs=1e-9)


def test_bounded_marks_where_the_cap_acted() -> None:
    for function in (Truncate, Mask):
        assert function("token", 2.0)(LOG_WEIGHT, ONE).bounded.tolist() == [False, False, True, False, False]
    assert not NoCorrection()(LOG_WEIGHT, ONE).bounded.any()


@pytest.mark.parametrize(("function", "bounded"), [(Truncate, 1.1), (Mask, 0.0)])
@pytest.mark.parametrize(("level", "gaps"), [("sequence", [0.25, 0.06]), ("geometric", [0.125, 0.02])])
def test_each_sequence_is_weighed_by_itself(function: type, bounded: float, level: str, gaps: list[float]) -> None:
    """Sums 0.25 and 0.06, means 0.125 and 0.02."""
    found = function(level, 1.1)(torch.tensor([0.1, 0.15, 0.0, 0.06, 0.0]), torch.tensor([2, 3]))
    assert found.weight.tolist() == pytest.approx([bounded] * 2 + [math.exp(gaps[1])] * 3)
    assert found.bounded.tolist() == [True, True, False, False, False]


def test_no_weight_is_infinite() -> None:
    assert Truncate("sequence", math.inf)(torch.full((100,), 50.0), torch.tensor([100])).weight.isfinite().all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"level": "word"}, r"algo.correction.level=word .*token, sequence, geometric"),
        ({"cap": 0.5}, r"algo.correction.cap=0.5 .*above 1"),
        ({"floor": 1.5}, r"algo.correction.floor=1.5 .*\[0, 1\]"),
        ({"floor": -0.5}, r"algo.correction.floor=-0.5 "),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Mask(**settings)  # type: ignore[arg-type]


NEWER = json.loads((ROOT / "tests/vectors2.json").read_text())["mismatch_correction"]


@pytest.mark.parametrize(
    ("name", "correction"),
    [
        ("tis_token_C2", Truncate("token", cap=2.0)),
        ("icepop_token_.5_5", Mask("token", cap=5.0, floor=0.5)),
        ("tis_sequence_C2", Truncate("sequence", cap=2.0)),
        ("mis_sequence_C3 (TRL default)", Mask("sequence", cap=3.0)),
        ("mis_sequence_.5_2", Mask("sequence", cap=2.0, floor=0.5)),
        ("mis_geometric_.5_2", Mask("geometric", cap=2.0, floor=0.5)),
        ("reject_geometric_.999_1.001 (verl default)", Reject("geometric", cap=1.001, floor=0.999)),
        ("reject_geometric_.8_1.2", Reject("geometric", cap=1.2, floor=0.8)),
    ],
)
def test_golden_bounds(name: str, correction: RolloutCorrection) -> None:
    mismatch, expected = (
        torch.tensor([value for row in rows for value in row], dtype=torch.float64)
        for rows in (NEWER["inputs"]["log_mismatch"], NEWER["outputs"][name])
    )
    assert correction(mismatch, torch.tensor([3, 5])).weight.tolist() == pytest.approx(expected.tolist(), abs=1e-9)


@pytest.mark.parametrize("level", ["sequence", "geometric"])
def test_golden_weights_without_a_bound(level: str) -> None:
    mismatch = torch.tensor([value for row in NEWER["inputs"]["log_mismatch"] for value in row], dtype=torch.float64)
    found = Truncate(level, cap=math.inf)(mismatch, torch.tensor([3, 5])).weight
    assert found[[0, 3]].tolist() == pytest.approx(NEWER["outputs"][f"{level} ratios"], abs=1e-9)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("function", [Truncate, Mask, Reject])
@pytest.mark.parametrize(("level", "hit"), [("token", [1]), ("sequence", [0, 1]), ("geometric", [0, 1])])
def test_what_the_engine_cannot_say_is_masked(function: type, value: float, level: str, hit: list[int]) -> None:
    found = function(level, 2.0)(torch.tensor([0.0, value, 0.0]), torch.tensor([2, 1]))
    expected = [0.0 if i in hit else 1.0 for i in range(3)]
    assert found.weight.tolist() == expected
    assert found.bounded.tolist() == [weight == 0 for weight in expected]
