"""Soft Thinking against the worked example."""

import json
from typing import Any

import pytest
import torch
from contexts import step_context
from places import ROOT
from torch.nn.functional import embedding

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Step
from ngrpo.exploration.soft import SoftThinking, entropy

GOLDEN = json.loads((ROOT / "tests/vectors.json").read_text())["soft_thinking"]
INPUTS, OUTPUTS = GOLDEN["inputs"], GOLDEN["outputs"]
LOGITS = torch.tensor([INPUTS["p"]], dtype=torch.float64).log()
END = 4


def of_entropy(target: float) -> torch.Tensor:
    """Logits of five tokens whose softmax has this entropy, found by halving."""
    low, high = 0.0, 40.0
    for _ in range(100):
        middle = (low + high) / 2
        logits = torch.tensor([[middle, 0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
        low, high = (low, middle) if float(entropy(logits)) < target else (middle, high)
    return logits


def run(strategy: SoftThinking, entropies: list[float], end_ids: tuple[int, ...] = (END,)) -> list[Step]:
    """Steps through the entropies, each with what the one before it left."""
    steps, state, ended = [], 0, False
    for position, value in enumerate(entropies):
        context = step_context(1, position, ended=[ended], end_ids=end_ids, state=[state])
        steps.append(strategy.step(of_entropy(value), context))
        assert steps[-1].state is not None
        state, ended = int(steps[-1].state), ended or int(steps[-1].token) in end_ids
    return steps


def test_weights_vector_and_entropy_are_the_papers():
    step = SoftThinking(top_n=INPUTS["topk"]).step(LOGITS, step_context(1))
    assert step.token.tolist() == [0]
    assert step.ids[0].tolist() == OUTPUTS["ids"]
    assert step.weights[0].tolist() == pytest.approx(OUTPUTS["weights"], abs=1e-9)
    table = torch.eye(5)
    fed = SoftThinking().inputs(lambda ids: embedding(ids, table), step, step_context(1), {})
    assert fed[0].tolist() == pytest.approx(OUTPUTS["concept_embedding"], abs=1e-6)
    assert float(entropy(LOGITS)) == pytest.approx(OUTPUTS["entropy"], abs=1e-9)


def test_cold_stop_comes_at_the_papers_step_and_what_follows_is_drawn():
    strategy = SoftThinking(top_n=3, cold_entropy=INPUTS["tau"], cold_steps=INPUTS["needed"])
    steps = run(strategy, [*INPUTS["entropies"], 0.5, 0.001])
    stop = OUTPUTS["cold_stop_step"]
    assert [int(s.token) for s in steps[: stop + 1]] == [0] * stop + [END]
    assert [bool(s.mixed) for s in steps] == [True] * stop + [False] * 3
    assert [int(s.state) for s in steps[: stop + 1]] == [0, 1, 2, 0, 1, 2, 3]
    assert int(steps[-1].token) == 0  # forced once only


@pytest.mark.parametrize(
    ("strategy", "end_ids"),
    [(SoftThinking(cold_entropy=0.0, cold_steps=1, top_n=3), (END,)), (SoftThinking(cold_steps=1, top_n=3), ())],
)
def test_no_cold_stop_at_threshold_zero_or_without_an_end_token(strategy: SoftThinking, end_ids: tuple[int, ...]):
    assert [bool(s.mixed) for s in run(strategy, [0.001] * 5, end_ids)] == [True] * 5


def test_an_argmax_that_ends_the_reasoning_is_emitted_and_fed_plainly():
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0, 3.0]])
    step = SoftThinking(top_n=2).step(logits, step_context(1, end_ids=(END,)))
    assert (step.token.tolist(), step.mixed.tolist()) == ([END], [False])


def test_the_rate_gates_each_step():
    rows = 4000
    logits = LOGITS.float().repeat(rows, 1)
    context = step_context(rows)
    step = SoftThinking(top_n=3, rate=0.3).step(logits, context)
    assert step.mixed.tolist() == (context.uniform("gate") < 0.3).tolist()
    assert 0.26 < float(step.mixed.float().mean()) < 0.34
    assert set(step.token[step.mixed].tolist()) == {0}
    assert step.token[~step.mixed].tolist() == context.sample(logits)[~step.mixed].tolist()


def test_deterministic_only_at_rate_one():
    assert SoftThinking().deterministic
    assert not SoftThinking(rate=0.99).deterministic


@pytest.mark.parametrize(
    ("setting", "value"),
    [("top_n", 0), ("rate", 1.5), ("cold_entropy", -0.1), ("cold_steps", 0), ("cold_steps", 2**31)],
)
def test_settings_out_of_range_are_refused(setting: str, value: Any):
    with pytest.raises(SettingError, match=rf"^exploration\.{setting}={value} .*\.$"):
        SoftThinking(**{setting: value})
