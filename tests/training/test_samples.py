import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from made_rollouts import experience, rollout, score
from over_ranks import alone

from ngrpo.algo.credit import Credited
from ngrpo.modeling.policy import TokenScores
from ngrpo.training.samples import (
    PrecomputedLogProbs,
    Sample,
    by_key,
    loss_inputs,
    make_samples,
    scored_batch,
    split_credit,
)
from ngrpo.types.rollouts import StopReason
from ngrpo.types.scores import Verdict

ROLLOUTS = [replace(rollout([1], [2] * n), log_probs=torch.arange(n) - float(10 * n)) for n in (1, 3, 2, 1)]
ROLLOUTS[2] = replace(ROLLOUTS[2], stop_reason=StopReason.LENGTH)
SCORES = [score(Verdict.CORRECT, "7"), score(Verdict.WRONG), score(Verdict.WRONG, "7"), score(Verdict.CORRECT, "x")]
MADE = experience(ROLLOUTS, SCORES, group_size=2)


def numbered(start: float) -> list[torch.Tensor]:
    """[T] for each rollout, counting up from ``start``."""
    return list(torch.arange(start, start + 7).split([1, 3, 2, 1]))


def values(start: float) -> list[torch.Tensor]:
    """[T + 1] for each rollout: those of `numbered`, and 9 after the last token."""
    return [torch.cat((part, torch.tensor([9.0]))) for part in numbered(start)]


def test_a_batch_is_packed_in_the_order_of_the_rollouts() -> None:
    batch = scored_batch(MADE, PrecomputedLogProbs(numbered(0.0), [None] * 4, values(50.0)), alone)
    assert batch.rewards.tolist() == [1.0, 0.0, 0.0, 1.0]
    assert batch.lengths.tolist() == [1, 3, 2, 1]
    assert batch.groups.rows.tolist() == [0, 0, 1, 1]
    assert batch.answers.tolist() == [0, 1, 0, 2]
    assert batch.old_log_prob is not None
    assert batch.old_log_prob.tolist() == list(range(7))
    assert batch.ref_log_prob is None
    assert batch.values is not None
    assert batch.values.tolist() == [n + 50.0 for n in range(7)]
    assert batch.truncated.tolist() == [False, False, True, False]
    assert batch.bootstrap is not None
    assert batch.bootstrap.tolist() == [0.0, 0.0, 9.0, 0.0]


@pytest.mark.parametrize("returns", [None, torch.arange(7.0)])
def test_what_was_assigned_goes_back_to_the_rollouts(returns: torch.Tensor | None) -> None:
    credited = Credited(torch.stack((torch.arange(7.0), -torch.arange(7.0))), returns)
    precomputed = PrecomputedLogProbs(numbered(100.0), [None] * 4, values(50.0))
    samples = make_samples(ROLLOUTS, split_credit(ROLLOUTS, credited), precomputed)
    assert [s.rollout for s in samples] == ROLLOUTS
    assert [s.advantage.tolist() for s in samples][1] == [[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0]]
    assert [s.old_log_prob.tolist() for s in samples] == [[100.0], [101.0, 102.0, 103.0], [104.0, 105.0], [106.0]]
    assert [s.ref_log_prob for s in samples] == [None] * 4
    assert [s.old_value.tolist() for s in samples][2] == [54.0, 55.0]
    assert [None if s.returns is None else s.returns.tolist() for s in samples][2] == (
        None if returns is None else [4.0, 5.0]
    )


def test_values_of_a_microbatch_are_taken_apart_by_rollout() -> None:
    samples = [Sample(replace(r, key=9 - i), torch.zeros(1, r.length)) for i, r in enumerate(ROLLOUTS)]
    parts = by_key(samples, torch.arange(7.0).requires_grad_())
    assert {key: part.tolist() for key, part in parts.items()} == {
        9: [0.0],
        8: [1.0, 2.0, 3.0],
        7: [4.0, 5.0],
        6: [6.0],
    }
    assert not any(part.requires_grad for part in parts.values())


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


def test_a_sample_is_excluded_whole() -> None:
    made = SimpleNamespace()
    assert Sample(made, torch.tensor([[math.nan, math.nan]])).excluded  # type: ignore[arg-type]
    assert not Sample(made, torch.zeros(2, 3)).excluded  # type: ignore[arg-type]
