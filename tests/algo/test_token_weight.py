"""Weights of tokens: golden vectors, edges, ranks, and what the loss makes of them."""

import json
import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from over_ranks import alone, in_ranks
from places import ROOT
from torch import Tensor

from ngrpo.algo import advantage, kl, ratio
from ngrpo.algo.aggregate import BatchTotals, seq_mean_token_mean, token_mean
from ngrpo.algo.clip import clipped_surrogate, unclipped
from ngrpo.algo.correction import Mask, Reject
from ngrpo.algo.loss_terms import LossInputs, LossOutput
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.algo.token_weight import (
    ClipCov,
    EntropyShaped,
    EvenTokens,
    ForkingTokens,
    KlCov,
    TokenWeight,
    TokenWeighting,
    WeighedTokens,
    covariance,
)
from ngrpo.errors import SettingError

VECTORS = json.loads((ROOT / "tests/vectors2.json").read_text())
PLAIN = Algorithm(advantage.raw, ratio.token, partial(clipped_surrogate, low=0.2, high=0.2), token_mean, kl.k3)
BATCH_WIDE = [ClipCov(0.3, 0.0, 5.0), KlCov(0.3), ForkingTokens(0.25)]


def packed(rows: list[list[Any]]) -> Tensor:
    return torch.tensor([value for row in rows for value in row], dtype=torch.float64)


def tokens(batch: LossInputs, uniform: Tensor | None = None, reduce: Any = alone) -> WeighedTokens:
    log_prob = batch.log_prob.detach()
    draws = torch.linspace(0.05, 0.95, len(log_prob)) if uniform is None else uniform
    return WeighedTokens(log_prob, batch.entropy, batch.advantages, draws, reduce)


def golden(name: str) -> LossInputs:
    inputs = VECTORS[name]["inputs"]
    lengths = torch.tensor([3, 5])
    source = inputs if "logp_new" in inputs else VECTORS["forking_tokens"]["inputs"]
    entropy = packed(VECTORS["forking_tokens"]["inputs"]["entropy"])
    by_token = torch.tensor([1.0, -0.5], dtype=torch.float64).repeat_interleave(lengths)[None]
    log_prob, old = packed(source["logp_new"]).requires_grad_(), packed(source["logp_old"])
    return LossInputs(log_prob, old, None, old, entropy, by_token, lengths)


def loss(algorithm: Algorithm, batch: LossInputs, uniform: Tensor | None = None) -> LossOutput:
    """Of one batch that is one microbatch, weighed as the training step does it."""
    if algorithm.weighs_batch:
        batch = replace(batch, token_weight=weigh(algorithm, tokens(batch, uniform), batch))
    return algorithm.loss(batch, totals(batch))


def weigh(algorithm: Algorithm, given: WeighedTokens, batch: LossInputs) -> TokenWeight:
    return algorithm.weigh(given, batch.log_mismatch, batch.lengths)


def totals(batch: LossInputs) -> BatchTotals:
    counted = batch.kept if batch.token_weight is None else batch.kept & batch.token_weight.counted
    return BatchTotals(sum(bool(part.any()) for part in counted.split(batch.lengths.tolist())), int(counted.sum()))


def gradient(output: LossOutput, batch: LossInputs) -> list[float]:
    found: list[float] = torch.autograd.grad(output.loss, batch.log_prob)[0].tolist()
    return found


def test_golden_clip_cov() -> None:
    inputs, outputs = VECTORS["clip_cov"]["inputs"], VECTORS["clip_cov"]["outputs"]
    batch, draws = golden("clip_cov"), torch.tensor(inputs["u"], dtype=torch.float64)
    weighting = ClipCov(inputs["ratio"], inputs["lb"], inputs["ub"])
    found = covariance(tokens(batch))
    assert found.tolist() == pytest.approx(packed(outputs["cov"]).tolist(), abs=1e-9)
    weight = weighting(tokens(batch, draws)).weight[0]
    assert (weight == 0).tolist() == [dropped for row in outputs["dropped"] for dropped in row]
    output = loss(replace(PLAIN, token_weight=weighting), batch, draws)
    assert output.loss.item() == pytest.approx(outputs["loss_token_mean"], abs=1e-9)
    assert gradient(output, batch) == pytest.approx(packed(outputs["grad"]).tolist(), abs=1e-9)
    nothing = loss(replace(PLAIN, token_weight=ClipCov(0.3, 6.0, 7.0)), batch, draws)
    assert nothing.loss.item() == pytest.approx(outputs["nothing_in_bounds"], abs=1e-9)
    alike = replace(batch, advantages=torch.full_like(batch.advantages, 0.3))
    assert covariance(tokens(alike)).tolist() == [0.0] * 8


def test_golden_kl_cov() -> None:
    inputs, outputs = VECTORS["kl_cov"]["inputs"], VECTORS["kl_cov"]["outputs"]
    batch, weighting = golden("kl_cov"), KlCov(inputs["ratio"], inputs["coef"])
    algorithm = replace(PLAIN, clip=unclipped, token_weight=weighting)
    penalty = weighting(tokens(batch)).penalty
    assert penalty is not None
    assert (penalty > 0).tolist() == [chosen for row in outputs["selected"] for chosen in row]
    output = loss(algorithm, batch)
    assert output.loss.item() == pytest.approx(outputs["loss_token_mean"], abs=1e-9)
    assert gradient(output, batch) == pytest.approx(packed(outputs["grad"]).tolist(), abs=1e-9)
    first = replace(batch, old_log_prob=batch.log_prob.detach())
    assert gradient(loss(algorithm, first), first) == gradient(loss(replace(PLAIN, clip=unclipped), first), first)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.8, 1.0])
def test_kl_cov_holds_the_largest_covariances_whatever_their_sign(share: float) -> None:
    """With a share of 1 every token, which is a KL penalty on all; the lower half of covariances is negative."""
    generator = torch.Generator().manual_seed(3)
    log_prob, advantage = torch.randn(2, 40, dtype=torch.float64, generator=generator)
    advantage[7] = math.nan
    kept = ~advantage.isnan()
    means = log_prob[kept].mean(), advantage[kept].mean()
    found = ((log_prob - means[0]) * (advantage - means[1])).tolist()
    order = sorted((n for n in range(40) if n != 7), key=lambda n: -found[n])
    expected = sorted(order[: max(int(share * 39), 1)])
    halves = [WeighedTokens(*part, torch.rand(20), alone) for part in _halves(log_prob, log_prob, advantage[None])]
    penalties = in_ranks(lambda part, reduce: KlCov(share)(replace(part, reduce=reduce)).penalty, halves)
    assert torch.cat(penalties).nonzero()[:, 0].tolist() == expected


def _halves(*channels: Tensor) -> list[tuple[Tensor, ...]]:
    return [tuple(channel[..., at] for channel in channels) for at in (slice(0, 20), slice(20, 40))]


@pytest.mark.parametrize("value", [-0.1, -0.3])
def test_log_probs_that_are_all_equal_choose_nothing(value: float) -> None:
    """The mean of many equal numbers is beside them by an ulp."""
    log_prob, draws = torch.full((9,), value, dtype=torch.float64), torch.linspace(0.1, 0.9, 9)
    equal = WeighedTokens(log_prob, torch.zeros(9), torch.linspace(-1, 1, 9)[None], draws, alone)
    assert not covariance(equal).any()
    assert not KlCov(0.5)(equal).penalty.any()


def test_forking_tokens_are_none_that_were_drawn_from_one_id() -> None:
    """In truncated sampling most may be: the quantile is 0 then, and they teach nothing."""
    batch = golden("forking_tokens")
    entropy = torch.zeros_like(batch.entropy)
    entropy[[1, 4]] = torch.tensor([0.5, 0.1], dtype=entropy.dtype)
    mostly_certain = tokens(replace(batch, entropy=entropy))
    for share in (0.5, 0.9):
        assert ForkingTokens(share)(mostly_certain).counted.nonzero()[:, 0].tolist() == [1, 4]
    assert ForkingTokens(1.0)(mostly_certain).counted.all()
    assert not ForkingTokens(0.5)(replace(mostly_certain, entropy=torch.zeros_like(entropy))).counted.any()


def test_golden_forking_tokens() -> None:
    inputs, outputs = VECTORS["forking_tokens"]["inputs"], VECTORS["forking_tokens"]["outputs"]
    batch = golden("forking_tokens")
    dapo = replace(PLAIN, clip=partial(clipped_surrogate, low=inputs["eps_low"], high=inputs["eps_high"]))
    weighting = ForkingTokens(inputs["share"])
    kept = [keep for row in outputs["kept"] for keep in row]
    assert weighting(tokens(batch)).counted.tolist() == kept
    output = loss(replace(dapo, token_weight=weighting), batch)
    assert output.loss.item() == pytest.approx(outputs["loss_paper"], abs=1e-9)
    assert gradient(output, batch) == pytest.approx(packed(outputs["grad_paper"]).tolist(), abs=1e-9)
    everything = replace(batch, token_weight=weighting(tokens(batch)))
    over_all = replace(dapo, token_weight=weighting).loss(everything, BatchTotals(2, 8)).loss
    assert over_all.item() == pytest.approx(outputs["loss_TRL_dapo"], abs=1e-9)
    assert ForkingTokens(1.0)(tokens(batch)).counted.all()
    none = [keep for row in outputs["share_0_kept"] for keep in row]
    assert ForkingTokens(0.0)(tokens(batch)).counted.tolist() == none
    alike = replace(batch, entropy=torch.full_like(batch.entropy, 0.3))
    assert int(weighting(tokens(alike)).counted.sum()) == outputs["all_equal_kept"]


def test_golden_entropy_shaped_advantage() -> None:
    inputs, outputs = VECTORS["entropy_shaped_advantage"]["inputs"], VECTORS["entropy_shaped_advantage"]["outputs"]
    batch, weighting = golden("entropy_shaped_advantage"), EntropyShaped(inputs["alpha"], inputs["kappa"])
    weight = weighting(tokens(batch)).weight
    assert weight[0].tolist() == pytest.approx(outputs["token_weight"], abs=1e-9)
    assert (weight * batch.advantages)[0].tolist() == pytest.approx(outputs["A_shaped"], abs=1e-9)
    dapo = replace(PLAIN, clip=partial(clipped_surrogate, low=0.2, high=0.28))
    output = loss(replace(dapo, token_weight=weighting), batch)
    assert output.loss.item() == pytest.approx(outputs["loss_token_mean"], abs=1e-9)
    assert gradient(output, batch) == pytest.approx(packed(outputs["grad"]).tolist(), abs=1e-9)
    still = replace(batch, advantages=torch.zeros_like(batch.advantages))
    assert weighting(tokens(still)).weight.tolist() == [[1.0] * 8]


def test_the_entropy_of_the_weight_carries_no_gradient() -> None:
    batch = golden("entropy_shaped_advantage")
    entropy = batch.entropy.clone().requires_grad_()
    output = replace(PLAIN, token_weight=EntropyShaped()).loss(replace(batch, entropy=entropy), BatchTotals(2, 8))
    (grad,) = torch.autograd.grad(output.loss, entropy, allow_unused=True, materialize_grads=True)
    assert not grad.any()


@pytest.mark.parametrize("weighting", [EvenTokens(), EntropyShaped(), *BATCH_WIDE], ids=str)
@pytest.mark.parametrize("aggregate", [token_mean, seq_mean_token_mean])
def test_a_response_that_is_excluded_changes_no_weight(weighting: TokenWeighting, aggregate: Any) -> None:
    batch = golden("clip_cov")
    out = torch.full((1, 4), math.nan, dtype=torch.float64)
    more = LossInputs(
        torch.cat((batch.log_prob, torch.full((4,), -9.0, dtype=torch.float64))),
        *(torch.cat((part, torch.full((4,), 7.0, dtype=torch.float64))) for part in (batch.old_log_prob,)),
        None,
        torch.zeros(12).double(),
        torch.cat((batch.entropy, torch.full((4,), 9.0, dtype=torch.float64))),
        torch.cat((batch.advantages, out), dim=-1),
        torch.tensor([3, 5, 4]),
    )
    algorithm = replace(PLAIN, aggregate=aggregate, token_weight=weighting)
    draws = torch.linspace(0.05, 0.95, 12)
    found, expected = loss(algorithm, more, draws), loss(algorithm, batch, draws[:8])
    assert found.loss.item() == pytest.approx(expected.loss.item(), abs=1e-12)
    assert gradient(found, batch) == pytest.approx(gradient(expected, batch), abs=1e-12)


@pytest.mark.parametrize("weighting", BATCH_WIDE, ids=str)
@pytest.mark.parametrize("split", [3, 0, 8])
def test_ranks_and_microbatches_make_the_gradient_of_one(weighting: TokenWeighting, split: int) -> None:
    batch = golden("clip_cov")
    algorithm = replace(PLAIN, token_weight=weighting)
    whole = algorithm.token_weight(tokens(batch))
    parts = [slice(0, split), slice(split, 8)]
    every = tokens(batch)

    def of_part(part: slice, reduce: Any) -> Any:
        return algorithm.token_weight(
            WeighedTokens(
                every.log_prob[part], every.entropy[part], every.advantages[:, part], every.uniform[part], reduce
            )
        )

    one, two = in_ranks(of_part, parts)
    assert torch.equal(torch.cat((one.weight, two.weight), -1), whole.weight)
    assert torch.equal(torch.cat((one.counted, two.counted)), whole.counted)
    if whole.penalty is not None:
        assert torch.equal(torch.cat((one.penalty, two.penalty)), whole.penalty)


def test_a_response_without_a_token_that_counts_is_not_counted() -> None:
    """Sequence means are then those of the other alone."""
    batch = golden("forking_tokens")
    batch = replace(batch, entropy=torch.tensor([9.0, 8.0, 7.0, *[1.0] * 5], dtype=torch.float64))
    algorithm = replace(PLAIN, aggregate=seq_mean_token_mean, token_weight=ForkingTokens(2 / 7))
    found = loss(algorithm, batch)
    surrogate = PLAIN.clip((batch.log_prob - batch.old_log_prob)[:3], batch.advantages[0, :3])
    assert found.loss.item() == pytest.approx(surrogate.loss.mean().item())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ForkingTokens(1.5), "algo.token_weight.share=1.5"),
        (lambda: ClipCov(share=-0.1), "algo.token_weight.share=-0.1"),
        (lambda: ClipCov(low=5.0, high=1.0), "algo.token_weight.low=5.0"),
        (lambda: KlCov(coef=-1.0), "algo.token_weight.coef=-1.0"),
        (lambda: EntropyShaped(alpha=-1.0), "algo.token_weight.alpha=-1.0"),
        (lambda: EntropyShaped(kappa=1.0), "algo.token_weight.kappa=1.0"),
    ],
)
def test_bad_settings_are_refused_by_name(make: Any, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        make()


def test_weights_of_a_batch_that_were_not_made_are_missed() -> None:
    with pytest.raises(ValueError, match="token_weight=ForkingTokens"):
        replace(PLAIN, token_weight=ForkingTokens()).loss(golden("forking_tokens"), BatchTotals(2, 8))


def mismatched() -> LossInputs:
    batch, mismatch = golden("clip_cov"), packed(VECTORS["mismatch_correction"]["inputs"]["log_mismatch"])
    return replace(batch, rollout_log_prob=batch.old_log_prob - mismatch)


def test_golden_masking_leaves_the_denominators_as_they_are() -> None:
    outputs, batch = VECTORS["mismatch_correction"]["outputs"], mismatched()
    output = loss(replace(PLAIN, correction=Mask("token", cap=5.0, floor=0.5)), batch)
    assert output.loss.item() == pytest.approx(outputs["icepop loss_token_mean, masked tokens counted"], abs=1e-9)
    assert gradient(output, batch) == pytest.approx(packed(outputs["icepop grad"]).tolist(), abs=1e-9)


def test_golden_rejection_leaves_the_denominators() -> None:
    """The first response is rejected: the token mean is that of the second."""
    vector, batch = VECTORS["mismatch_correction"], mismatched()
    (key,) = (name for name in vector["outputs"] if name.startswith("rejecting the first response"))
    output = loss(replace(PLAIN, correction=Reject("geometric", cap=1.2, floor=0.5)), batch)
    assert output.loss.item() == pytest.approx(vector["outputs"][key], abs=1e-9)
    assert gradient(output, batch)[:3] == [0.0] * 3


@pytest.mark.parametrize("weighting", [EvenTokens(), EntropyShaped(), *BATCH_WIDE], ids=str)
@pytest.mark.parametrize("aggregate", [token_mean, seq_mean_token_mean])
def test_what_is_rejected_is_as_if_it_were_not_there(weighting: TokenWeighting, aggregate: Any) -> None:
    batch = golden("clip_cov")
    mismatch = torch.tensor([3.0, 0.0, 0.0, *[0.0] * 5], dtype=torch.float64)
    batch = replace(batch, rollout_log_prob=batch.old_log_prob - mismatch)
    algorithm = replace(PLAIN, kl_coef=0.1, entropy_coef=0.1, aggregate=aggregate, token_weight=weighting)
    batch = replace(batch, ref_log_prob=batch.old_log_prob - 0.3)
    found = loss(replace(algorithm, correction=Reject("sequence", cap=2.0)), batch)
    without = replace(batch, advantages=torch.where(torch.arange(8) < 3, math.nan, batch.advantages))
    expected = loss(algorithm, without)
    assert found.loss.item() == pytest.approx(expected.loss.item(), abs=1e-12)
    assert gradient(found, batch) == pytest.approx(gradient(expected, batch), abs=1e-12)
