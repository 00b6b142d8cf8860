"""N-GRPO's mixing against the paper's worked examples."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from places import ROOT
from torch import Tensor, nn

from ngrpo.errors import SettingError
from ngrpo.exploration.base import RowContext, Step, StepContext
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.neighbor_table import build_neighbor_table

VECTORS = json.loads((ROOT / "tests/vectors.json").read_text())
E = torch.tensor(VECTORS["mixing_weights"]["inputs"]["E"], dtype=torch.float64)
NEVER = torch.tensor([], dtype=torch.int64)
NOWHERE = RowContext(NEVER, NEVER, E[:0])


@dataclass(frozen=True)
class GivenDraws(StepContext):
    """A context whose gate and token draws are given."""

    gate: Tensor
    sampled: Tensor

    def uniform(self, stream: str, index: Tensor | int = 0) -> Tensor:
        assert stream == "gate"
        return self.gate

    def sample(self, logits: Tensor) -> Tensor:
        return self.sampled


def context(
    gate: list[float],
    sampled: list[int],
    ended: list[bool] | None = None,
    end_ids: Tensor = NEVER,
    k: int = 3,
) -> GivenDraws:
    rows = len(gate)
    table = build_neighbor_table(E, k, "cosine", torch.zeros(len(E), dtype=torch.bool))
    return GivenDraws(
        keys=torch.arange(rows),
        positions=torch.arange(rows),
        embedding=E[:0],
        ended=torch.tensor(ended or [False] * rows),
        end_ids=end_ids,
        tables={"neighbors": table},
        state=NEVER.int(),
        progress=torch.tensor(0),
        gate=torch.tensor(gate, dtype=torch.float64),
        sampled=torch.tensor(sampled),
    )


def mixed_step(logits: list[float], temperature: float) -> Step:
    scaled = torch.tensor([logits], dtype=torch.float64) / temperature
    return NeighborMixing(rate=1.0).step(scaled, context([0.5], [5]))


def fed(step: Step) -> Tensor:
    """What the engine feeds: the mixture where mixed, else the token's row."""
    embed = nn.Embedding.from_pretrained(E.float())
    vectors = NeighborMixing().inputs(embed, step._replace(weights=step.weights.float()), NOWHERE, {})
    return torch.where(step.mixed[:, None], vectors, embed(step.token))


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.5, 0.0001])
def test_weights_and_input_are_the_papers(temperature: float) -> None:
    golden = VECTORS["mixing_weights"]["outputs"]
    step = mixed_step(VECTORS["mixing_weights"]["inputs"]["logits"], temperature)
    expected = golden[f"T={temperature}"]
    assert step.token.tolist() == [golden["anchor"]]
    assert step.ids[0].tolist() == golden["C_cosine_k3"]
    assert step.weights[0].tolist() == pytest.approx(expected["alpha_paper"], abs=1e-9)
    assert fed(step)[0].tolist() == pytest.approx(expected["mixed_embedding"], abs=1e-6)
    cosine = torch.cosine_similarity(fed(step)[0].double(), E[golden["anchor"]], dim=0)
    assert float(cosine) == pytest.approx(expected["cosine_to_anchor"], abs=1e-6)


def test_weights_of_peaked_logits() -> None:
    golden = VECTORS["mixing_weights"]["outputs"]["peaked_logits"]
    step = mixed_step(golden["logits"], 1.0)
    assert step.weights[0].tolist() == pytest.approx(golden["alpha_paper_T1"], abs=1e-9)
    cosine = torch.cosine_similarity(fed(step)[0].double(), E[0], dim=0)
    assert float(cosine) == pytest.approx(golden["cos_paper"], abs=1e-9)


def test_weights_in_float32_stay_finite_and_sum_to_one() -> None:
    logits = torch.tensor([[3e4, 1e4, 2e4, -1e4, -torch.inf, 0.0]])
    step = NeighborMixing(rate=1.0).step(logits, context([0.5], [5]))
    assert step.weights.tolist() == [[1.0, 0.0, 0.0]]


def test_anchor_tie_takes_the_smaller_id() -> None:
    golden = VECTORS["mixing_anchor_tie"]
    step = mixed_step(golden["inputs"]["logits"], 1.0)
    assert step.token.tolist() == [golden["outputs"]["anchor_lowest_id"]]


@pytest.mark.parametrize(
    ("rate", "end_token", "expected"),
    [
        (0.1, None, "m_raw"),
        (0.1, "</think>", "m_stop_at_end_inclusive (check before mixing; released SGLang path)"),
        (0.0, None, "rho=0 -> all"),
        (1.0, None, "rho=1 -> all"),
    ],
)
def test_gate(rate: float, end_token: str | None, expected: str) -> None:
    golden: dict[str, Any] = VECTORS["gate"]
    end_slot = golden["inputs"]["tokens"].index("</think>")
    # Six steps of one rollout: step t's anchor is token t, so the token of the end's slot is the end token.
    end_ids = torch.tensor([end_slot]) if end_token else NEVER
    ended = [end_token is not None and t > end_slot for t in range(6)]
    logits = torch.eye(6, dtype=torch.float64)
    ctx = context(golden["inputs"]["u"], list(range(6)), ended, end_ids)
    step = NeighborMixing(rate=rate, end_token=end_token).step(logits, ctx)
    assert step.mixed.tolist() == golden["outputs"][expected]


def test_rollout_of_the_paper() -> None:
    golden = VECTORS["ngrpo_neighbor_rollout"]
    inputs, expected = golden["inputs"], golden["outputs"]
    strategy = NeighborMixing(rate=inputs["rho"], k=inputs["k"])
    logits = torch.tensor(inputs["logits"], dtype=torch.float64) / inputs["T"]
    step = strategy.step(logits, context(inputs["u"], inputs["sampled_token"], k=inputs["k"]))
    vectors, log_probs = fed(step), strategy.log_prob(logits, step, NOWHERE)
    for t, want in enumerate(expected):
        assert step.mixed[t].item() == want["m"]
        assert step.token[t].item() == want["emitted_token_paper"]
        assert log_probs[t].item() == pytest.approx(want["logp_paper"], abs=1e-9)
        assert vectors[t].tolist() == pytest.approx(want["input_embedding_for_position_t"], abs=1e-6)
        # An unmixed position counts as C = (o_t), alpha = (1).
        ids, weights = (step.ids[t], step.weights[t]) if want["m"] else (step.token[t : t + 1], torch.ones(1))
        assert ids.tolist() == want["C"]
        assert weights.tolist() == pytest.approx(want["alpha"], abs=1e-9)
    assert [want["m"] for want in expected] == [True, False, True]


def test_k_1_feeds_and_emits_the_argmax() -> None:
    logits = torch.tensor(VECTORS["mixing_weights"]["inputs"]["logits"])[None]
    step = NeighborMixing(rate=1.0, k=1).step(logits, context([0.5], [5], k=1))
    assert (step.token.tolist(), step.ids.tolist(), step.weights.tolist()) == ([0], [[0]], [[1.0]])


def test_width_is_k() -> None:
    assert NeighborMixing(k=5).width == 5


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("rate", -0.1),
        ("rate", 1.1),
        ("rate", float("nan")),
        ("k", 0),
        ("metric", "manhattan"),
        ("refresh_every", -1),
    ],
)
def test_settings_out_of_range_are_refused(setting: str, value: Any) -> None:
    with pytest.raises(SettingError, match=rf"^exploration\.{setting}={value} .*\.$"):
        NeighborMixing(**{setting: value})
