"""Tokens that responses have in common: each counts once in the loss, by hand, in any microbatches and on any ranks."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from made_passes import made_passes
from made_rollouts import experience, score
from over_ranks import alone, in_ranks
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from update_probe import ALGORITHMS

from ngrpo.algo import aggregate, ratio
from ngrpo.algo.correction import NoCorrection, Reject
from ngrpo.algo.moments import Reduce
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.algo.tree_credit import TreeCentred
from ngrpo.errors import SettingError
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.rollout.scheduling.at_share import ForkAtShare
from ngrpo.rollout.scheduling.growth import grow
from ngrpo.training import token_weights
from ngrpo.training.optim.loss_scale import LossScale
from ngrpo.training.policy_update import PolicyUpdate
from ngrpo.training.samples import (
    PrecomputedLogProbs,
    ResponseCredit,
    Sample,
    batch_totals,
    make_samples,
    scored_batch,
    scored_by_their_own_step,
    split_credit,
    with_shares,
)
from ngrpo.training.token_weights import weighed
from ngrpo.training.update_settings import UpdateSettings
from ngrpo.types.rollouts import Rollout
from ngrpo.types.scores import Verdict
from ngrpo.types.serialization import deserialize_rollout, serialize_rollout

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
STRATEGY = NeighborMixing(rate=0.3)
BASE = replace(ALGORITHMS["grpo"], kl_coef=0.0)
AGGREGATES = {
    "token_mean": aggregate.token_mean,
    "seq_mean_token_mean": aggregate.seq_mean_token_mean,
    "seq_mean_token_sum": aggregate.seq_mean_token_sum,
    "const_norm": partial(aggregate.const_norm, length=24),
}
ADVANTAGES = [1.0, -1.0, 0.5, math.nan, 2.0, -0.25, 1.5, -2.0]


@pytest.fixture(scope="module")
def scoring(tiny_model_path: Path) -> ScoringModel:
    return ScoringModel(ModelSource(str(tiny_model_path)).load())


@pytest.fixture
def rollouts(make_engine, bound, requests, sampling) -> list[Rollout]:
    """Two prompts; each a tree of four leaves, with forks at three places."""
    engine = make_engine()
    exploration = bound(engine, STRATEGY)
    trees = grow(
        ForkAtShare(branching=2, shares=(0.3, 0.6)),
        [requests[:4], requests[4:8]],
        sampling.max_new_tokens,
        lambda asked: engine.generate(asked, sampling, exploration),
    )
    made = [leaf for tree in trees for leaf in tree.leaves]
    assert max(len(rollout.path.nodes) for rollout in made if rollout.path) == 3
    return made


def samples_of(rollouts: Sequence[Rollout], once: bool = True) -> list[Sample]:
    """The old policy is a little off the present one, the same for a token in all responses that have it."""
    credits = [
        ResponseCredit(torch.full((1, rollout.length), value), None)
        for rollout, value in zip(rollouts, ADVANTAGES, strict=True)
    ]
    old: list[Tensor | None] = [r.log_probs + 0.1 * torch.arange(r.length).sin() for r in rollouts]
    unknown: list[Tensor | None] = [None] * len(rollouts)
    precomputed = PrecomputedLogProbs(old, unknown, unknown)
    return make_samples(rollouts, with_shares(rollouts, credits) if once else credits, precomputed)


def updater(
    model: ScoringModel, algorithm: Algorithm, temperature: float, tokens: int = 80, reduce: Reduce = alone
) -> PolicyUpdate:
    return PolicyUpdate(
        model=model,
        settings=UpdateSettings(temperature=temperature, max_grad_norm=1e9),
        algorithm=algorithm,
        exploration=STRATEGY,
        forward_passes=made_passes(model, reduce, tokens),
        loss_scale=LossScale(),
        data_ranks=1,
        schedule=LambdaLR(torch.optim.SGD(model.parameters(), lr=1.0), lambda step: 1.0),
        reduce_everywhere=reduce,
    )


def step(
    model: ScoringModel, algorithm: Algorithm, samples: list[Sample], temperature: float, tokens: int = 80
) -> tuple[dict[str, Tensor], Tensor]:
    """Returns metrics and gradient."""
    model.zero_grad()
    found = updater(model, algorithm, temperature, tokens)
    metrics = found.accumulate(samples, Tensor.backward)
    return metrics, torch.cat([p.grad.flatten().clone() for p in model.parameters() if p.grad is not None])


def nodes_of(rollouts: Sequence[Rollout]) -> dict[tuple[int, int], list[int]]:
    """The counted responses that have each token, by its node and index."""
    found: dict[tuple[int, int], list[int]] = {}
    for number, rollout in enumerate(rollouts):
        if math.isnan(ADVANTAGES[number]):
            continue
        path = rollout.path
        for index in range(rollout.length):
            node = (
                rollout.key
                if path is None
                else max((start, node) for node, start in zip(path.nodes, path.starts, strict=True) if start <= index)[
                    1
                ]
            )
            found.setdefault((node, index), []).append(number)
    return found


@pytest.mark.parametrize("name", AGGREGATES)
def test_the_loss_by_hand(scoring: ScoringModel, rollouts: list[Rollout], sampling, name: str) -> None:
    """Token by distinct token: the mean over the responses that have it, and the denominators written out."""
    samples = samples_of(rollouts)
    metrics, _ = step(scoring, replace(BASE, aggregate=AGGREGATES[name]), samples, sampling.temperature)
    now = torch.split(
        scoring(pack(rollouts), sampling.temperature, STRATEGY).log_prob.detach(), [r.length for r in rollouts]
    )
    tokens = nodes_of(rollouts)
    assert max(map(len, tokens.values())) == 4
    lengths = [0.0] * len(rollouts)
    for members in tokens.values():
        for number in members:
            lengths[number] += 1 / len(members)
    counted = sum(not math.isnan(value) for value in ADVANTAGES)
    expected = 0.0
    for (_, index), members in tokens.items():
        for number in members:
            old = samples[number].old_log_prob
            assert old is not None
            log_ratio = (now[number][index] - old[index])[None]
            loss = float(BASE.clip(log_ratio, torch.tensor([[ADVANTAGES[number]]])).loss)
            weight = {
                "token_mean": 1 / len(tokens),
                "seq_mean_token_mean": 1 / (counted * lengths[number]),
                "seq_mean_token_sum": 1 / counted,
                "const_norm": 1 / (counted * 24),
            }[name]
            expected += loss * weight / len(members)
    assert float(metrics["policy/loss"]) == pytest.approx(expected, abs=1e-5)
    assert batch_totals(samples, alone).tokens == pytest.approx(len(tokens), rel=1e-5)
    assert float(metrics["policy/sequences"]) == counted


@pytest.mark.parametrize("name", ["sequence", "sequence_token", "sequence_clipped"])
def test_ratios_of_sequences_learn_from_a_token_once(
    scoring: ScoringModel, rollouts: list[Rollout], sampling, name: str
) -> None:
    """Where the policy is its own old one they have the gradient of ratios by token, common tokens included."""
    algorithm = replace(BASE, aggregate=aggregate.seq_mean_token_mean)
    samples = scored_by_their_own_step(samples_of(rollouts))
    _, expected = step(scoring, algorithm, samples, sampling.temperature)
    _, found = step(scoring, replace(algorithm, ratio=getattr(ratio, name)), samples, sampling.temperature)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_the_ratio_of_a_sequence_counts_its_tokens_by_their_shares() -> None:
    log_prob, old = torch.tensor([-1.0, -2.0, -3.0, -1.0]), torch.tensor([-1.5, -1.0, -3.0, -2.0])
    found = ratio.sequence(log_prob, old, torch.tensor([3, 1]), torch.tensor([0.25, 0.25, 1.0, 1.0]))
    assert found.tolist() == pytest.approx([(0.25 * 0.5 - 0.25) / 1.5] * 3 + [1.0])


def test_each_is_as_if_nothing_were_in_common(scoring: ScoringModel, rollouts: list[Rollout], sampling) -> None:
    apart = [replace(rollout, path=None) for rollout in rollouts]
    found = step(scoring, BASE, samples_of(rollouts, once=False), sampling.temperature)
    expected = step(scoring, BASE, samples_of(apart), sampling.temperature)
    torch.testing.assert_close(found[1], expected[1], rtol=0, atol=0)
    once = step(scoring, BASE, samples_of(rollouts), sampling.temperature)
    assert float((once[1] - expected[1]).abs().max()) > 1e-4


@pytest.mark.parametrize("tokens", [1, 40, 10_000])
@pytest.mark.parametrize("name", AGGREGATES)
def test_any_microbatches_have_one_gradient(
    scoring: ScoringModel, rollouts: list[Rollout], sampling, name: str, tokens: int
) -> None:
    algorithm = replace(BASE, aggregate=AGGREGATES[name], entropy_coef=0.05)
    expected = step(scoring, algorithm, samples_of(rollouts), sampling.temperature)
    found = step(scoring, algorithm, samples_of(rollouts)[::-1], sampling.temperature, tokens)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-5, atol=1e-6)
    for tag, value in expected[0].items():
        torch.testing.assert_close(found[0][tag], value, rtol=1e-4, atol=1e-6)


def test_any_ranks_have_one_gradient(scoring: ScoringModel, rollouts: list[Rollout], sampling) -> None:
    """Also where the responses of one tree are trained on by two."""
    samples = samples_of(rollouts)
    _, expected = step(scoring, BASE, samples, sampling.temperature)
    parts = [(samples[::2], 40), (samples[1::2], 10_000)]
    totals = in_ranks(lambda part, reduce: batch_totals(part[0], reduce), parts)
    assert totals[0] == totals[1]
    assert totals[0].tokens == pytest.approx(batch_totals(samples, alone).tokens, rel=1e-6)
    found = torch.zeros_like(expected)
    for part, tokens in parts:
        scoring.zero_grad()
        made = updater(scoring, BASE, sampling.temperature, tokens)
        # The reduction of the other rank's counts.
        made.forward_passes = replace(
            made.forward_passes, reduce=lambda value, op: _as_whole(value, totals[0]) if op == "sum" else value
        )
        made.accumulate(part, Tensor.backward)
        found += torch.cat([p.grad.flatten() for p in scoring.parameters() if p.grad is not None])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def _as_whole(value: Tensor, totals: aggregate.BatchTotals) -> Tensor:
    counts = torch.tensor([totals.sequences, totals.tokens], dtype=torch.float64)
    return counts if value.shape == (2,) and value.dtype == torch.float64 else value


def test_credit_by_tree_reaches_the_samples(rollouts: list[Rollout]) -> None:
    """From an experience to samples: advantages by tree, excluded responses without a share."""
    verdicts = [Verdict.CORRECT, Verdict.WRONG, Verdict.UNPARSABLE_REFERENCE, Verdict.CORRECT] * 2
    made = experience(rollouts, [score(verdict) for verdict in verdicts], group_size=4)
    unknown: list[Tensor | None] = [None] * 8
    algorithm = replace(ALGORITHMS["reinforce_pp"], credit=TreeCentred(whiten=False), kl_coef=0.0, kl_in="loss")
    credits = split_credit(
        rollouts, algorithm.assign(scored_batch(made, PrecomputedLogProbs([None] * 8, unknown, unknown), alone))
    )
    shared = with_shares(rollouts, credits)
    first = [float(credit.advantages[0, 0]) for credit in credits[:4]]
    rewards = torch.tensor([1.0, 0.0, math.nan, 1.0])
    expected = []
    for number in (0, 1, 3):
        path = rollouts[number].path
        terms = [1.0 * rewards[number] - rewards.nanmean()]
        for node in () if path is None else path.nodes:
            inside = [i for i in (0, 1, 3) if (other := rollouts[i].path) is not None and node in other.nodes]
            if len(inside) > 1:
                terms.append(rewards[number] - rewards[inside].mean())
        expected.append(float(torch.stack(terms).mean()))
    assert [first[number] for number in (0, 1, 3)] == pytest.approx(expected)
    assert math.isnan(first[2])
    distinct = {(node, index) for number in (0, 1, 3) for index, node in enumerate(_nodes_by_token(rollouts[number]))}
    total = sum(float(credit.share.sum()) for credit in (shared[0], shared[1], shared[3]) if credit.share is not None)
    assert total == pytest.approx(len(distinct), rel=1e-5)


def _nodes_by_token(rollout: Rollout) -> list[int]:
    if rollout.path is None:
        return [rollout.key] * rollout.length
    lengths = rollout.path.lengths(rollout.length)
    return [node for node, length in zip(rollout.path.nodes, lengths, strict=True) for _ in range(length)]


def test_tokens_that_do_not_count_have_no_share(scoring: ScoringModel, rollouts: list[Rollout], sampling) -> None:
    """Forking tokens: those that are left out are in no denominator, the others by their shares."""
    algorithm = replace(ALGORITHMS["grpo"], kl_coef=0.0, token_weight=ALGORITHMS["forking"].token_weight)
    scores = scoring(pack(rollouts), sampling.temperature, STRATEGY)
    entropies = torch.split(scores.entropy.detach(), [r.length for r in rollouts])
    samples = [replace(s, old_entropy=e) for s, e in zip(samples_of(rollouts), entropies, strict=True)]
    chosen = weighed(samples, algorithm, alone)
    by_hand = 0.0
    for sample in chosen:
        if not sample.excluded:
            assert sample.share is not None
            assert sample.counted is not None
            by_hand += float(sample.share[sample.counted].sum())
    assert batch_totals(chosen, alone).tokens == pytest.approx(by_hand, rel=1e-5)
    assert by_hand < batch_totals(samples, alone).tokens
    metrics, _ = step(scoring, algorithm, chosen, sampling.temperature)
    assert bool(metrics["policy/loss"].isfinite())


@pytest.mark.parametrize("name", AGGREGATES)
def test_a_rejected_response_is_none_of_those_that_have_a_token_in_common(
    scoring: ScoringModel, rollouts: list[Rollout], sampling, name: str
) -> None:
    """It is as if it had been excluded before the shares were made."""
    number = 1
    path = rollouts[number].path
    assert path is not None
    algorithm = replace(BASE, aggregate=AGGREGATES[name], correction=Reject("geometric", cap=1.5, floor=0.5))
    samples = samples_of(rollouts)
    far = torch.arange(rollouts[number].length) >= path.starts[-1]  # its own tokens
    far_off = replace(rollouts[number], log_probs=rollouts[number].log_probs - 9.0 * far)
    asked = [replace(s, rollout=far_off) if i == number else s for i, s in enumerate(samples)]
    left = [replace(s, advantage=s.advantage * math.nan) if i == number else s for i, s in enumerate(samples)]
    credits = [ResponseCredit(sample.advantage, None) for sample in left]
    excluded = [replace(s, share=c.share) for s, c in zip(left, with_shares(rollouts, credits), strict=True)]
    chosen = weighed(asked, algorithm, alone)
    assert [sample.tokens > 0 for sample in chosen] == [sample.tokens > 0 for sample in excluded]
    assert batch_totals(chosen, alone) == batch_totals(excluded, alone)
    _, expected = step(scoring, replace(algorithm, correction=NoCorrection()), excluded, sampling.temperature)
    _, found = step(scoring, algorithm, chosen, sampling.temperature)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_those_that_have_a_token_in_common_are_counted_on_all_ranks(
    rollouts: list[Rollout], monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = replace(BASE, correction=Reject("token", cap=1e9))
    expected = [sample.share for sample in weighed(samples_of(rollouts), algorithm, alone)]
    parts = [samples_of(rollouts)[::2], samples_of(rollouts)[1::2]]
    posted: list[Any] = []
    monkeypatch.setattr(token_weights, "gathered", lambda own: posted.append(own) or [own])
    for part in parts:
        weighed(part, algorithm, alone)
    monkeypatch.setattr(token_weights, "gathered", lambda own: posted)
    for start, part in enumerate(parts):
        found = [sample.share for sample in weighed(part, algorithm, alone)]
        torch.testing.assert_close(found, expected[start::2])


def test_paths_survive_serialization(rollouts: list[Rollout]) -> None:
    for rollout in rollouts:
        assert deserialize_rollout(serialize_rollout(rollout)).path == rollout.path


def test_another_choice_is_refused() -> None:
    with pytest.raises(SettingError, match=r"algo.shared_tokens=twice is not known; choose once or each"):
        replace(BASE, shared_tokens="twice")
