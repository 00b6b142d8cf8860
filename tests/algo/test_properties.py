"""What must hold for any input."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from over_ranks import alone
from torch import Tensor

from ngrpo.algo import advantage, aggregate, clip, kl, ratio, subsets
from ngrpo.algo.aggregate import BatchTotals
from ngrpo.algo.consistency import ConsistencyBlend
from ngrpo.algo.correction import Truncate
from ngrpo.algo.credit import Broadcast, DiscountedReturns, ScoredBatch
from ngrpo.algo.groups import Groups
from ngrpo.algo.loss_terms import LossInputs
from ngrpo.algo.policy_loss import Algorithm

settings.register_profile("steady", deadline=None, derandomize=True, database=None, max_examples=60)
settings.load_profile("steady")

CLIPS: dict[str, Any] = {
    "symmetric": partial(clip.clipped_surrogate, low=0.2, high=0.2),
    "asymmetric": partial(clip.clipped_surrogate, low=0.16, high=0.28),
    "gspo": partial(clip.clipped_surrogate, low=3e-4, high=4e-4),
    "dual": partial(clip.clipped_surrogate, low=0.2, high=0.2, dual=3.0),
}
WITHOUT_VALUE: dict[str, Any] = {
    "cispo": partial(clip.clipped_weight, high=0.3),
    "dppo_tv": clip.dppo_tv,
    "dppo_kl": partial(clip.dppo_kl, low=0.01, high=0.01),
}
"""Of which only the gradient has a meaning."""
RATIOS = {"token": ratio.token, "sequence": ratio.sequence, "sequence_token": ratio.sequence_token}
LEVELS = [*RATIOS.values(), ratio.sequence_clipped]
AGGREGATES: dict[str, Any] = {
    "token_mean": aggregate.token_mean,
    "seq_mean_token_mean": aggregate.seq_mean_token_mean,
    "seq_mean_token_sum": aggregate.seq_mean_token_sum,
    "const_norm": partial(aggregate.const_norm, length=9),
}
KLS = {"k1": kl.k1, "k2": kl.k2, "k3": kl.k3, "weighted_k3": kl.weighted_k3}
RELATIVE: dict[str, Any] = {
    "group_centred": advantage.group_centred,
    "group_standardised": advantage.group_standardised,
    "leave_one_out": advantage.leave_one_out,
    "maxk": partial(subsets.maxk, k=2),
}
number = partial(st.floats, allow_nan=False, width=32)


@st.composite
def algorithms(draw: DrawFn) -> Algorithm:
    return Algorithm(
        advantage=advantage.group_standardised,
        ratio=draw(st.sampled_from(LEVELS)),
        clip=draw(st.sampled_from([*CLIPS.values(), *WITHOUT_VALUE.values(), clip.sapo])),
        aggregate=draw(st.sampled_from(list(AGGREGATES.values()))),
        kl=draw(st.sampled_from(list(KLS.values()))),
        correction=Truncate(draw(st.sampled_from(["token", "sequence", "geometric"]))),
        kl_coef=draw(st.sampled_from([0.0, 0.1])),
        entropy_coef=draw(st.sampled_from([0.0, 0.1])),
    )


@st.composite
def batches(draw: DrawFn) -> LossInputs:
    """Up to 5 responses of up to 6 tokens, in one or two channels, some of them left out."""
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    total = sum(lengths)
    log_probs = [torch.tensor(draw(st.lists(number(-3, 0), min_size=total, max_size=total))) for _ in range(4)]
    channels = draw(st.integers(1, 2))
    by_response = st.lists(number(-2, 2) | st.just(torch.nan), min_size=len(lengths), max_size=len(lengths))
    advantages = torch.tensor([draw(by_response) for _ in range(channels)], dtype=torch.float64)
    advantages[:, advantages.isnan().any(0)] = torch.nan
    log_prob, old, ref, rollout = (values.double() for values in log_probs)
    sizes = torch.tensor(lengths)
    entropy = (-log_prob).clone().requires_grad_()
    by_token = advantages.repeat_interleave(sizes, dim=-1)
    return LossInputs(log_prob.requires_grad_(), old, ref, rollout, entropy, by_token, sizes)


def totals(batch: LossInputs) -> BatchTotals:
    starts = batch.lengths.cumsum(0) - 1
    return BatchTotals(sequences=int(batch.kept[starts].sum()), tokens=int(batch.kept.sum()))


def gradients(algorithm: Algorithm, batch: LossInputs) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and its gradient by log-prob and entropy."""
    loss = algorithm.loss(batch, totals(batch)).loss
    grads = torch.autograd.grad(loss, (batch.log_prob, batch.entropy), allow_unused=True, materialize_grads=True)
    return (loss.detach(), *grads)


@given(algorithms(), batches(), number(-5, 5))
def test_what_is_left_out_has_no_gradient_and_no_influence(algorithm: Algorithm, batch: LossInputs, shift: float):
    loss, grad, entropy_grad = gradients(algorithm, batch)
    out = ~batch.kept
    assert (grad[out] == 0).all()
    assert (entropy_grad[out] == 0).all()
    moved = {
        name: torch.where(out, getattr(batch, name).detach() + shift, getattr(batch, name).detach())
        for name in ("log_prob", "old_log_prob", "ref_log_prob", "rollout_log_prob", "entropy")
    }
    leaves = {name: moved[name].requires_grad_() for name in ("log_prob", "entropy")}
    other = replace(batch, **moved | leaves)
    for a, b in zip(gradients(algorithm, other), (loss, grad, entropy_grad), strict=True):
        torch.testing.assert_close(a, b)
    before, after = (algorithm.loss(b, totals(b)).sums.stack() for b in (batch, other))
    torch.testing.assert_close(before, after)


@given(algorithms(), batches(), st.randoms(use_true_random=False))
def test_permuting_a_batch_permutes_the_gradient(algorithm: Algorithm, batch: LossInputs, random: Any):
    order = list(range(len(batch.lengths)))
    random.shuffle(order)
    starts = (batch.lengths.cumsum(0) - batch.lengths).tolist()
    index = torch.cat([torch.arange(starts[i], starts[i] + int(batch.lengths[i])) for i in order])
    flat = ("log_prob", "old_log_prob", "ref_log_prob", "rollout_log_prob", "entropy")
    moved = {name: getattr(batch, name).detach()[index] for name in flat}
    leaves = {name: moved[name].requires_grad_() for name in ("log_prob", "entropy")}
    permuted = LossInputs(**moved | leaves, advantages=batch.advantages[:, index], lengths=batch.lengths[order])
    loss, grad, entropy_grad = gradients(algorithm, batch)
    expected = (loss, grad[index], entropy_grad[index])
    for a, b in zip(gradients(algorithm, permuted), expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", CLIPS)
@given(batch=batches(), level=st.sampled_from(LEVELS))
def test_at_ratio_one_every_clip_is_the_unclipped_surrogate(name: str, batch: LossInputs, level: Any):
    batch = replace(batch, old_log_prob=batch.log_prob.detach())
    parts = {"aggregate": aggregate.token_mean, "kl": kl.k3, "ratio": level}
    clipped, free = (Algorithm(advantage.raw, clip=c, **parts) for c in (CLIPS[name], clip.unclipped))
    for a, b in zip(gradients(clipped, batch), gradients(free, batch), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("made", [*WITHOUT_VALUE.values(), clip.sapo])
@given(batch=batches())
def test_at_ratio_one_others_have_the_gradient_of_the_unclipped_surrogate(made: Any, batch: LossInputs):
    batch = replace(batch, old_log_prob=batch.log_prob.detach())
    parts = {"aggregate": aggregate.token_mean, "kl": kl.k3, "ratio": ratio.token}
    found, free = (Algorithm(advantage.raw, clip=c, **parts) for c in (made, clip.unclipped))
    torch.testing.assert_close(gradients(found, batch)[1], gradients(free, batch)[1])


@given(algorithms(), batches(), number(0, 4))
def test_a_weight_on_the_advantage_is_a_weight_on_the_surrogate(algorithm: Algorithm, batch: LossInputs, weight: float):
    """What lets the channels of COPO carry their weights."""
    algorithm = replace(algorithm, kl_coef=0.0, entropy_coef=0.0)
    weighted = gradients(algorithm, replace(batch, advantages=weight * batch.advantages))
    for a, b in zip(weighted, gradients(algorithm, batch), strict=True):
        torch.testing.assert_close(a, weight * b)


rewards_of_groups = st.integers(1, 4).flatmap(
    lambda prompts: st.integers(2, 6).flatmap(
        lambda size: st.lists(
            st.lists(st.integers(-20, 20) | st.just(torch.nan), min_size=size, max_size=size),
            min_size=prompts,
            max_size=prompts,
        )
    )
)


@pytest.mark.parametrize("name", RELATIVE)
@given(rewards=rewards_of_groups, constant=st.integers(-50, 50))
def test_a_constant_added_to_a_group_changes_no_relative_advantage(name: str, rewards: Any, constant: int):
    """Quarters, so that sums are exact and a dead group stays dead."""
    table = torch.tensor(rewards, dtype=torch.float64) / 4
    shifted = table.clone()
    shifted[0] += constant / 4
    torch.testing.assert_close(RELATIVE[name](shifted), RELATIVE[name](table), equal_nan=True)


@given(rewards=rewards_of_groups, random=st.randoms(use_true_random=False))
@pytest.mark.parametrize("credit", [Broadcast(), DiscountedReturns(0.9), ConsistencyBlend(2.0, 1.0)], ids=str)
def test_permuting_the_rollouts_of_a_batch_permutes_their_advantages(credit: Any, rewards: Any, random: Any):
    table = torch.tensor(rewards, dtype=torch.float64) / 4
    count = table.numel()
    lengths = torch.tensor([1 + (7 * i) % 4 for i in range(count)])
    keys = [10 - i // table.shape[1] for i in range(count)]
    answers = torch.arange(count) % 3
    order = list(range(count))
    random.shuffle(order)
    algorithm = Algorithm(
        advantage.group_standardised, ratio.token, clip.unclipped, aggregate.token_mean, kl.k3, credit
    )

    def advantages(rows: list[int]) -> dict[int, Tensor]:
        groups = Groups.of([keys[row] for row in rows])
        batch = ScoredBatch(groups, table.flatten()[rows], answers[rows], lengths[rows], lengths[rows] < 0, alone)
        parts = algorithm.assign(batch).advantages.split(lengths[rows].tolist(), dim=-1)
        return dict(zip(rows, parts, strict=True))

    straight, shuffled = advantages(list(range(count))), advantages(order)
    for row, expected in straight.items():
        torch.testing.assert_close(shuffled[row], expected, equal_nan=True)
