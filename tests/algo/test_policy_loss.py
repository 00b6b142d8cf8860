import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from places import ROOT

from ngrpo.algo import advantage, kl, ratio
from ngrpo.algo.aggregate import BatchTotals, const_norm, seq_mean_token_mean, seq_mean_token_sum, token_mean
from ngrpo.algo.clip import clipped_surrogate, dppo_tv_squared, unclipped
from ngrpo.algo.correction import Truncate
from ngrpo.algo.loss_terms import LossInputs, LossOutput, LossSums
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.errors import SettingError

VECTORS = json.loads((ROOT / "tests/vectors.json").read_text())
GRPO = Algorithm(
    advantage=advantage.group_standardised,
    ratio=ratio.token,
    clip=partial(clipped_surrogate, low=0.2, high=0.2),
    aggregate=seq_mean_token_mean,
    kl=kl.k3,
)
DAPO = replace(GRPO, clip=partial(clipped_surrogate, low=0.2, high=0.28), aggregate=token_mean)
DR_GRPO = replace(GRPO, aggregate=partial(const_norm, length=10))
GSPO = replace(GRPO, ratio=ratio.sequence)
KL = 0.1


def packed(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor([value for row in rows for value in row], dtype=torch.float64)


def golden(name: str, advantages: list[float] | None = None) -> tuple[LossInputs, BatchTotals]:
    inputs = VECTORS[name]["inputs"]
    log_prob, old = packed(inputs["logp_new"]).requires_grad_(), packed(inputs["logp_old"])
    lengths = torch.tensor([len(row) for row in inputs["logp_new"]])
    by_token = torch.tensor(advantages or inputs["A"], dtype=torch.float64).repeat_interleave(lengths)[None]
    batch = LossInputs(log_prob, old, None, old, torch.zeros(8).double(), by_token, lengths)
    return batch, BatchTotals(sequences=2, tokens=8)


def random_batch(lengths: list[int]) -> tuple[LossInputs, BatchTotals]:
    generator = torch.Generator().manual_seed(0)
    log_prob, old, ref, rollout, entropy = -torch.rand(5, sum(lengths), dtype=torch.float64, generator=generator)
    advantages = torch.randn(len(lengths), dtype=torch.float64, generator=generator)
    by_token = advantages.repeat_interleave(torch.tensor(lengths))[None]
    batch = LossInputs(log_prob.requires_grad_(), old, ref, rollout, -entropy, by_token, torch.tensor(lengths))
    return batch, BatchTotals(sequences=len(lengths), tokens=sum(lengths))


def pick(batch: LossInputs, rows: list[int]) -> LossInputs:
    """The microbatch of these sequences, sharing the leaf that gradient flows to."""
    starts = (batch.lengths.cumsum(0) - batch.lengths).tolist()
    spans = [torch.arange(starts[row], starts[row] + int(batch.lengths[row])) for row in rows]
    index = torch.cat(spans)
    assert batch.ref_log_prob is not None
    return LossInputs(
        batch.log_prob[index],
        batch.old_log_prob[index],
        batch.ref_log_prob[index],
        batch.rollout_log_prob[index],
        batch.entropy[index],
        batch.advantages[:, index],
        batch.lengths[rows],
    )


def gradient(output: LossOutput, batch: LossInputs) -> torch.Tensor:
    return torch.autograd.grad(output.loss, batch.log_prob)[0]


def one_sequence_at_a_time(algorithm: Algorithm, batch: LossInputs, totals: BatchTotals) -> torch.Tensor:
    """The specification as a double loop, for token ratios, symmetric clip 0.2 and sequence means."""
    assert batch.ref_log_prob is not None
    loss = torch.zeros((), dtype=torch.float64)
    start = 0
    for length in batch.lengths.tolist():
        for t in range(start, start + length):
            adv = batch.advantages[0, t]
            r = torch.exp(batch.log_prob[t] - batch.old_log_prob[t])
            d = batch.ref_log_prob[t] - batch.log_prob[t]
            surrogate = torch.minimum(adv * r, adv * r.clamp(0.8, 1.2))
            loss = loss - (surrogate - algorithm.kl_coef * (d.exp() - d - 1)) / length / totals.sequences
        start += length
    return loss


@pytest.mark.parametrize(
    ("algorithm", "loss_key", "grad_key"),
    [
        (GRPO, "GRPO_seq_mean (1/G sum_i 1/|o_i| sum_t)", "grad_wrt_logp_GRPO"),
        (replace(GRPO, aggregate=token_mean), "DAPO_token_mean (1/sum|o_i| sum)", "grad_wrt_logp_DAPO"),
        (DR_GRPO, "DrGRPO_const (1/(G*Lmax) sum)", "grad_wrt_logp_DrGRPO"),
    ],
)
def test_golden_losses_and_gradients(algorithm: Algorithm, loss_key: str, grad_key: str) -> None:
    batch, totals = golden("losses_two_sequences")
    outputs = VECTORS["losses_two_sequences"]["outputs"]
    found = algorithm.loss(batch, totals)
    assert found.loss.item() == pytest.approx(outputs[loss_key], abs=1e-9)
    assert gradient(found, batch).tolist() == pytest.approx(packed(outputs[grad_key]).tolist(), abs=1e-9)


def test_golden_losses_without_gradients() -> None:
    batch, totals = golden("losses_two_sequences")
    outputs = VECTORS["losses_two_sequences"]["outputs"]
    token_sum = replace(GRPO, aggregate=seq_mean_token_sum).loss(batch, totals).loss.item()
    assert DAPO.loss(batch, totals).loss.item() == pytest.approx(outputs["DAPO_loss_0.2_0.28"], abs=1e-9)
    assert token_sum == pytest.approx(outputs["seq-mean-token-sum (1/G sum_i sum_t)"], abs=1e-9)
    for algorithm, key in ((GRPO, "token_loss_eps0.2"), (DAPO, "DAPO_token_loss_eps0.2_0.28")):
        by_token = algorithm.clip(batch.log_prob - batch.old_log_prob, batch.advantages).loss[0]
        assert by_token.tolist() == pytest.approx(packed(outputs[key]).tolist(), abs=1e-9)


@pytest.mark.parametrize(
    ("case", "low", "high"),
    [("paper_3e-4_4e-4", 3e-4, 4e-4), ("eps_0.2", 0.2, 0.2), ("A_swapped_paper_eps", 3e-4, 4e-4)],
)
def test_golden_gspo(case: str, low: float, high: float) -> None:
    expected = VECTORS["gspo"]["outputs"][case]
    batch, totals = golden("gspo", expected.get("A"))
    found = replace(GSPO, clip=partial(clipped_surrogate, low=low, high=high)).loss(batch, totals)
    grad = packed(expected["grad_wrt_each_token_logp"]).tolist()
    assert found.loss.item() == pytest.approx(expected["loss_mean"], abs=1e-9)
    assert gradient(found, batch).tolist() == pytest.approx(grad, abs=1e-9)
    assert found.sums.clipped.item() == grad.count(0.0)


def test_equals_the_specification_as_a_double_loop() -> None:
    batch, totals = random_batch([3, 5, 1])
    algorithm = replace(GRPO, kl_coef=KL)
    found = algorithm.loss(batch, totals)
    slow = one_sequence_at_a_time(algorithm, batch, totals)
    (slow_grad,) = torch.autograd.grad(slow, batch.log_prob)
    torch.testing.assert_close(found.loss, slow)
    torch.testing.assert_close(gradient(found, batch), slow_grad)


@pytest.mark.parametrize("split", [[[0, 1, 2], [3, 4]], [[4], [2], [0], [1, 3]], [[3, 1, 4, 0, 2]]])
@pytest.mark.parametrize("algorithm", [GRPO, DAPO, DR_GRPO, GSPO])
def test_no_split_or_order_changes_loss_gradient_or_metrics(algorithm: Algorithm, split: Any) -> None:
    algorithm = replace(algorithm, kl_coef=KL)
    batch, totals = random_batch([2, 8, 1, 5, 3])
    whole = algorithm.loss(batch, totals)
    parts = [algorithm.loss(pick(batch, rows), totals) for rows in split]
    total = torch.stack([part.loss for part in parts]).sum()
    sums = LossSums.unstack(torch.stack([part.sums.stack() for part in parts]).sum(0))
    torch.testing.assert_close(total, whole.loss)
    torch.testing.assert_close(torch.autograd.grad(total, batch.log_prob)[0], gradient(whole, batch))
    torch.testing.assert_close(sums.means(), whole.sums.means())


def test_gspo_weighs_a_short_and_a_long_sequence_equally() -> None:
    batch, totals = random_batch([2, 8])
    batch = replace(batch, old_log_prob=batch.log_prob.detach(), advantages=torch.ones(1, 10).double())
    short, long = gradient(GSPO.loss(batch, totals), batch).split([2, 8])
    assert short.sum().item() == pytest.approx(-0.5)
    assert long.sum().item() == pytest.approx(-0.5)


@pytest.mark.parametrize("algorithm", [GRPO, DAPO, GSPO])
def test_on_policy_the_clip_does_nothing(algorithm: Algorithm) -> None:
    batch, totals = random_batch([2, 8, 4])
    batch = replace(batch, old_log_prob=batch.log_prob.detach())
    free = replace(algorithm, clip=partial(clipped_surrogate, low=1.0, high=1e9))
    found, unclipped = algorithm.loss(batch, totals), free.loss(batch, totals)
    torch.testing.assert_close(found.loss, unclipped.loss)
    torch.testing.assert_close(gradient(found, batch), gradient(unclipped, batch))
    assert found.sums.means()["policy/clip_fraction"].item() == 0.0
    assert found.sums.means()["policy/ratio"].item() == pytest.approx(1.0)


@pytest.mark.parametrize("algorithm", [GRPO, DAPO, DR_GRPO, GSPO])
def test_padding_rows_of_length_zero_change_nothing(algorithm: Algorithm) -> None:
    batch, totals = random_batch([2, 3])
    padded = replace(batch, lengths=torch.tensor([2, 3, 0]))
    found, expected = algorithm.loss(padded, totals), algorithm.loss(batch, totals)
    assert found.loss.item() == expected.loss.item()
    assert gradient(found, padded).tolist() == gradient(expected, batch).tolist()


@pytest.mark.parametrize("algorithm", [GRPO, DAPO, DR_GRPO, GSPO])
def test_a_microbatch_of_padding_only_can_be_backpropagated(algorithm: Algorithm) -> None:
    parameter = torch.ones((), requires_grad=True)
    empty = torch.zeros(0)
    batch = LossInputs(parameter * empty, *[empty] * 4, torch.zeros(1, 0), torch.tensor([0]))
    found = replace(algorithm, kl_coef=KL).loss(batch, BatchTotals(sequences=0, tokens=0))
    found.loss.backward()
    assert parameter.grad is not None
    assert parameter.grad.item() == 0.0
    assert all(value.item() == 0.0 for value in found.sums.means().values())


def test_sums_are_detached_token_sums() -> None:
    batch, totals = random_batch([4, 6])
    sums = DAPO.loss(batch, totals).sums
    log_prob = batch.log_prob.detach()
    r = (log_prob - batch.old_log_prob).exp()
    adv = batch.advantages[0]
    clipped = ((adv > 0) & (r > 1.28)) | ((adv < 0) & (r < 0.8))
    assert batch.ref_log_prob is not None
    mismatch = batch.old_log_prob - batch.rollout_log_prob
    divergence = kl.k3(log_prob, batch.ref_log_prob, log_prob)
    expected = [
        10.0, divergence.sum(), clipped.sum(), r.sum(), batch.entropy.sum(), 10.0, 0.0,
        mismatch.abs().sum(), -mismatch.sum(), (mismatch.exp() - mismatch - 1).sum(),
    ]  # fmt: skip
    assert 0 < clipped.sum() < 10
    assert sums.stack().tolist() == pytest.approx([float(value) for value in expected])
    assert not sums.stack().requires_grad


def test_the_reference_is_needed_only_with_a_kl_term() -> None:
    batch, totals = random_batch([2, 3])
    blind = replace(batch, ref_log_prob=None)
    regularised = replace(GRPO, kl_coef=KL)
    assert not GRPO.needs_reference
    assert regularised.needs_reference
    assert GRPO.loss(blind, totals).loss.item() == GRPO.loss(batch, totals).loss.item()
    with pytest.raises(ValueError, match=r"kl_coef=0.1 needs ref_log_prob"):
        regularised.loss(blind, totals)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kl_coef": -0.1}, ["algo.kl_coef=-0.1", "set it to 0"]),
        ({"kl_coef": float("nan")}, ["algo.kl_coef=nan"]),
        ({"entropy_coef": -0.1}, ["algo.entropy_coef=-0.1", "set it to 0"]),
        ({"kl_in": "advantage"}, ["algo.kl_in=advantage", "loss or reward"]),
        ({"ratio_to": "old"}, ["algo.ratio_to=old", "trainer or engine"]),
        ({"zero_signal": "loss"}, ["algo.zero_signal=loss", "keep or drop"]),
        ({"truncated": "mask"}, ["algo.truncated=mask", "keep, drop, zero or zero_unscored"]),
        ({"prompts_per_batch": 0}, ["algo.prompts_per_batch=0", "1 or more"]),
        ({"optimizer_steps": 0}, ["algo.optimizer_steps=0", "1 or more"]),
        (
            {"prompts_per_batch": 10, "optimizer_steps": 4},
            ["algo.prompts_per_batch=10", "algo.optimizer_steps=4", "a multiple"],
        ),
    ],
)
def test_bad_settings_are_refused_by_name(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(SettingError) as error:
        replace(GRPO, **settings)
    assert all(word in str(error.value) for word in words)


def test_hydra_builds_an_algorithm_from_partials() -> None:
    def function(path: str, **settings: Any) -> dict[str, Any]:
        return {"_target_": f"ngrpo.algo.{path}", "_partial_": True, **settings}

    build: Callable[[dict[str, Any]], Algorithm] = instantiate
    algorithm = build(
        {
            "_target_": "ngrpo.algo.policy_loss.Algorithm",
            "advantage": function("advantage.group_standardised"),
            "ratio": function("ratio.token"),
            "clip": function("clip.clipped_surrogate", low=0.2, high=0.2),
            "aggregate": function("aggregate.const_norm", length=10),
            "kl": function("kl.k3"),
            "kl_coef": 0.001,
        }
    )
    batch, totals = random_batch([2, 3])
    expected = replace(DR_GRPO, kl_coef=0.001).loss(batch, totals).loss.item()
    assert algorithm.loss(batch, totals).loss.item() == expected


def test_ratios_are_those_of_the_tokens_that_count() -> None:
    batch, totals = random_batch([3, 4])
    advantages = batch.advantages.clone()
    advantages[0, 3:] = float("nan")
    ratios = GRPO.loss(replace(batch, advantages=advantages), totals).ratios
    assert torch.allclose(ratios[:3], (batch.log_prob - batch.old_log_prob).exp()[:3])
    assert ratios[3:].isnan().all()
    assert not ratios.requires_grad


def test_a_response_that_is_left_out_changes_nothing() -> None:
    """NaN as advantage: the loss, its gradient and the metrics are those of the batch without it, the KL's too."""
    batch, _ = random_batch([3, 4, 2])
    algorithm = replace(GRPO, kl_coef=KL, entropy_coef=0.1)
    advantages = batch.advantages.clone()
    advantages[0, 3:7] = float("nan")
    with_gap = algorithm.loss(replace(batch, advantages=advantages), BatchTotals(2, 5))
    (grad,) = torch.autograd.grad(with_gap.loss, batch.log_prob)
    without = algorithm.loss(pick(batch, [0, 2]), BatchTotals(2, 5))
    (expected,) = torch.autograd.grad(without.loss, batch.log_prob)
    torch.testing.assert_close(grad, expected)
    assert (grad[3:7] == 0).all()
    torch.testing.assert_close(with_gap.loss, without.loss)
    torch.testing.assert_close(with_gap.sums.stack(), without.sums.stack())


def test_channels_are_clipped_by_their_own_sign() -> None:
    """The specification's blend: r = 1.5, A_local = 1, A_global = -1, w = 0.3."""
    vector = VECTORS["copo"]["outputs"]["loss_blend_vs_advantage_blend"]
    w, local, across = vector["w_local"], vector["A_local"], vector["A_global"]
    zero = torch.zeros(1, dtype=torch.float64)
    log_ratio = torch.tensor([vector["ratio"]], dtype=torch.float64).log()
    batch = LossInputs(
        log_ratio, zero, None, zero, zero, torch.tensor([[w * local], [(1 - w) * across]]), zero.int() + 1
    )
    one = BatchTotals(sequences=1, tokens=1)
    assert GRPO.loss(batch, one).loss.item() == pytest.approx(vector["blend_of_losses"])
    blended = replace(batch, advantages=batch.advantages.sum(0, keepdim=True))
    assert GRPO.loss(blended, one).loss.item() == pytest.approx(vector["loss_of_blended_advantage"])


def test_the_entropy_bonus_is_aggregated_like_the_surrogate() -> None:
    batch, totals = random_batch([3, 5, 1])
    entropy = batch.entropy.clone().requires_grad_()
    with_bonus = replace(GRPO, entropy_coef=0.5).loss(replace(batch, entropy=entropy), totals).loss
    expected = -0.5 * torch.stack([row.mean() for row in batch.entropy.split([3, 5, 1])]).mean()
    torch.testing.assert_close(with_bonus - GRPO.loss(batch, totals).loss, expected)
    (grad,) = torch.autograd.grad(with_bonus, entropy)
    torch.testing.assert_close(grad, -0.5 / 3 / batch.lengths.repeat_interleave(batch.lengths).double())


@pytest.mark.parametrize(("level", "cap"), [("token", 1.3), ("sequence", 1.3), ("geometric", 1.1)])
def test_the_correction_weighs_the_surrogate_only(level: str, cap: float) -> None:
    batch, totals = random_batch([2, 8, 4])
    correction = Truncate(level, cap)
    plain = replace(GRPO, kl_coef=KL, entropy_coef=0.2)
    weight, bounded = correction(batch.log_mismatch, batch.lengths)
    found = replace(plain, correction=correction).loss(batch, totals)
    # Every surrogate is homogeneous in the advantage: a weight on one is a weight on the other.
    expected = plain.loss(replace(batch, advantages=weight * batch.advantages), totals)
    torch.testing.assert_close(found.loss, expected.loss)
    torch.testing.assert_close(gradient(found, batch), gradient(expected, batch))
    assert 0 < bounded.sum() < 14
    assert found.sums.weight.item() == pytest.approx(weight.sum().item())
    assert found.sums.bounded.item() == bounded.sum().item()


def test_the_correction_does_not_renormalise() -> None:
    batch, totals = random_batch([2, 8, 4])
    doubled = replace(batch, rollout_log_prob=batch.old_log_prob - 0.5)
    found = replace(GRPO, correction=Truncate("token", cap=9.0)).loss(doubled, totals)
    assert found.loss.item() == pytest.approx(math.exp(0.5) * GRPO.loss(batch, totals).loss.item())


def test_kl_in_the_reward_is_not_in_the_loss_too() -> None:
    batch, totals = random_batch([2, 3])
    found = replace(GRPO, kl_coef=KL, kl_in="reward").loss(batch, totals)
    assert found.loss.item() == GRPO.loss(batch, totals).loss.item()
    assert found.sums.kl > 0


GMPO = json.loads((ROOT / "tests/vectors2.json").read_text())["gmpo"]


@pytest.mark.parametrize("bound", [0.45, 0.2])
def test_golden_gmpo(bound: float) -> None:
    expected = GMPO["outputs"][f"eps={bound}"]
    batch, totals = golden("losses_two_sequences", GMPO["inputs"]["A"])
    level = partial(ratio.sequence_clipped, low=bound, high=bound)
    found = replace(GRPO, ratio=level, clip=unclipped).loss(batch, totals)
    assert found.loss.item() == pytest.approx(expected["loss"], abs=1e-9)
    assert gradient(found, batch).tolist() == pytest.approx(packed(expected["grad"]).tolist(), abs=1e-9)
    log_ratio = level(batch.log_prob, batch.old_log_prob, batch.lengths, batch.advantages)
    by_response = -(batch.advantages * log_ratio.log_ratio.exp())[0, [0, 3]]
    assert by_response.tolist() == pytest.approx(expected["seq_loss"], abs=1e-9)


@pytest.mark.parametrize("clip", [unclipped, partial(clipped_surrogate, low=0.05, high=0.05)])
@pytest.mark.parametrize("level", [ratio.token, ratio.sequence, partial(ratio.sequence_clipped, low=0.1, high=0.1)])
def test_the_clip_fraction_is_of_the_tokens_without_a_gradient_whatever_bounds_them(level: Any, clip: Any) -> None:
    """GMPO's bounds are in its ratio, and its clip bounds nothing: the curve was 0 throughout."""
    batch, totals = random_batch([2, 8, 1, 5])
    found = replace(GRPO, ratio=level, clip=clip).loss(batch, totals)
    still = int((gradient(found, batch) == 0).sum())
    assert found.sums.clipped.item() == still
    assert (still > 0) == (clip is not unclipped or isinstance(level, partial))


def test_gmpo_without_bounds_is_gspo_without_a_clip() -> None:
    batch, totals = random_batch([2, 8, 1])
    free = replace(GRPO, ratio=partial(ratio.sequence_clipped, low=1e9, high=1e9), clip=unclipped)
    found, expected = free.loss(batch, totals), replace(GSPO, clip=unclipped).loss(batch, totals)
    torch.testing.assert_close(found.loss, expected.loss)
    torch.testing.assert_close(gradient(found, batch), gradient(expected, batch))
    torch.testing.assert_close(found.ratios, expected.ratios)


def test_gmpo_clips_each_channel_by_its_own_sign() -> None:
    batch, totals = random_batch([4, 3])
    level = partial(ratio.sequence_clipped, low=0.1, high=0.1)
    algorithm = replace(GRPO, ratio=level, clip=unclipped)
    channels = torch.cat((batch.advantages, -2 * batch.advantages))
    found = algorithm.loss(replace(batch, advantages=channels), totals).loss
    alone = [algorithm.loss(replace(batch, advantages=row[None]), totals).loss for row in channels]
    torch.testing.assert_close(found, alone[0] + alone[1])


def test_ratios_to_the_engine_are_of_its_log_probs() -> None:
    """The mismatch stays what it is, of the trainer's log-probs."""
    batch, totals = random_batch([4, 3, 6])
    found = replace(GRPO, ratio_to="engine").loss(batch, totals)
    expected = GRPO.loss(replace(batch, old_log_prob=batch.rollout_log_prob), totals)
    torch.testing.assert_close(found.loss, expected.loss)
    torch.testing.assert_close(gradient(found, batch), gradient(expected, batch))
    torch.testing.assert_close(found.ratios, expected.ratios)
    torch.testing.assert_close(found.sums.mismatch, GRPO.loss(batch, totals).sums.mismatch)


def test_a_clips_penalty_is_counted_once_and_weighed_by_nothing() -> None:
    batch, totals = random_batch([4, 3, 6])
    clip = partial(dppo_tv_squared, low=0.2, high=0.2)
    channels = torch.cat((batch.advantages, batch.advantages))
    channels[:, :4] = math.nan
    excluded = replace(batch, advantages=channels)
    with_it, without = (
        replace(GRPO, clip=partial(clip, coef=coef), correction=Truncate()).loss(excluded, totals).loss
        for coef in (0.5, 0.0)
    )
    square = (batch.log_prob - batch.old_log_prob).square()
    expected = 0.5 * (square[4:7].mean() + square[7:].mean()) / 3
    torch.testing.assert_close(with_it - without, expected)
