import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from made_rollouts import experience, rollout, score
from over_ranks import alone

from ngrpo.modeling.policy import TokenScores
from ngrpo.rewards.verdict import Verdict
from ngrpo.samples import Sample, loss_inputs, scored_batch

ROLLOUTS = [replace(rollout([1], [2] * n), log_probs=torch.arange(n) - float(10 * n)) for n in (1, 3, 2, 1)]
SCORES = [score(Verdict.CORRECT, "7"), score(Verdict.WRONG), score(Verdict.WRONG, "7"), score(Verdict.CORRECT, "x")]
MADE = experience(ROLLOUTS, SCORES, group_size=2)


def numbered(start: float) -> list[torch.Tensor]:
    """[T] for each rollout, counting up from ``start``."""
    return list(torch.arange(start, start + 7).split([1, 3, 2, 1]))


def test_a_batch_is_packed_in_the_order_of_the_rollouts() -> None:
    batch = scored_batch(MADE, numbered(0.0), [None] * 4, alone)
    assert batch.rewards.tolist() == [1.0, 0.0, 0.0, 1.0]
    assert batch.lengths.tolist() == [1, 3, 2, 1]
    assert batch.groups.rows.tolist() == [0, 0, 1, 1]
    assert batch.answers.tolist() == [0, 1, 0, 2]
    assert batch.old_log_prob is not None
    assert batch.old_log_prob.tolist() == list(range(7))
    assert batch.ref_log_prob is None


@pytest.mark.parametrize("known", [True, False])
def test_old_log_probs_are_the_current_ones_where_unknown(known: bool) -> None:
    old = numbered(100.0) if known else [None] * 4
    advantages = [torch.full((1, r.length), float(i)) for i, r in enumerate(ROLLOUTS)]
    samples = [Sample(*parts) for parts in zip(ROLLOUTS, advantages, old, numbered(200.0), strict=True)]
    current = torch.arange(7.0).requires_grad_()
    inputs = loss_inputs(samples, TokenScores(current, torch.ones(7)), torch.tensor([1, 3, 2, 1]))
    assert inputs.log_prob is current
    assert inputs.old_log_prob.tolist() == [n + 100.0 * known for n in range(7)]
    assert not inputs.old_log_prob.requires_grad
    assert inputs.ref_log_prob is not None
    assert inputs.ref_log_prob.tolist() == [n + 200.0 for n in range(7)]
    assert inputs.rollout_log_prob.tolist() == [-10.0, -30.0, -29.0, -28.0, -20.0, -19.0, -10.0]
    assert inputs.advantages.tolist() == [[0.0, 1.0, 1.0, 1.0, 2.0, 2.0, 3.0]]


def test_a_sample_is_left_out_whole() -> None:
    made = SimpleNamespace()
    assert Sample(made, torch.tensor([[math.nan, math.nan]])).left_out  # type: ignore[arg-type]
    assert not Sample(made, torch.zeros(2, 3)).left_out  # type: ignore[arg-type]
