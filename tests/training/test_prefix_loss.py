"""A prefix is context to the update: the loss of continuations is the masked loss of whole responses, by hand."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from made_passes import made_passes
from made_rollouts import experience, rollout, score
from over_ranks import alone
from places import ROOT
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from transformers import AutoModelForCausalLM
from update_probe import ALGORITHMS

from ngrpo.algo.policy_loss import Algorithm
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.critic import ValueModel
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.policy import ScoringModel
from ngrpo.training.critic_update import CriticSettings, CriticUpdate
from ngrpo.training.optim.loss_scale import LossScale
from ngrpo.training.policy_update import PolicyUpdate
from ngrpo.training.samples import (
    PrecomputedLogProbs,
    Sample,
    make_samples,
    scored_batch,
    split_credit,
)
from ngrpo.training.update_settings import UpdateSettings
from ngrpo.types.rollouts import Rollout
from ngrpo.types.scores import Verdict

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
STRATEGY = NeighborMixing(rate=0.3)
NAMES = ("grpo", "gspo")
VECTOR = json.loads((ROOT / "tests/vectors2.json").read_text())["prefix_sampling"]


@pytest.fixture
def rollouts(make_engine, bound, requests, sampling) -> list[Rollout]:
    """Eight continuations: every other of a prefix, of different lengths."""
    engine = make_engine()
    exploration = bound(engine, STRATEGY)
    whole = engine.generate(requests[:8], sampling, exploration)
    asked = [
        replace(one, key=one.key + 1, prefix=made.cut(2 + number)) if number % 2 else one
        for number, (one, made) in enumerate(zip(requests, whole, strict=False))
    ]
    made: list[Rollout] = engine.generate(asked, sampling, exploration)
    assert sum(len(r.mixture.positions) - len(r.without_given_mixtures().mixture.positions) for r in made) > 3
    return made


def samples_of(rollouts: Sequence[Rollout], advantages: Sequence[float]) -> list[Sample]:
    """The old policy is a little off the present one, so that ratios differ from 1."""
    return [
        Sample(
            rollout,
            torch.full((1, rollout.generated), advantage),
            old_log_prob=rollout.generated_log_probs + 0.1 * torch.arange(rollout.generated).sin(),
        )
        for rollout, advantage in zip(rollouts, advantages, strict=True)
    ]


def updater(path: Path, algorithm: Algorithm, temperature: float) -> PolicyUpdate:
    model = ScoringModel(ModelSource(str(path)).load())
    return PolicyUpdate(
        model=model,
        settings=UpdateSettings(temperature=temperature, max_grad_norm=1e9),
        algorithm=algorithm,
        exploration=STRATEGY,
        forward_passes=made_passes(model, alone, share_prompts=False),  # which would add in another order
        loss_scale=LossScale(),
        data_ranks=1,
        schedule=LambdaLR(torch.optim.SGD(model.parameters(), lr=1.0), lambda step: 1.0),
        reduce_everywhere=alone,
    )


def stock_log_probs(path: Path, rollout: Rollout, temperature: float) -> Tensor:
    """Of the whole response, prefix and all, by stock transformers; float32 [T]."""
    with torch.no_grad():
        return scored_whole(stock_model(path), rollout, temperature)


def stock_model(path: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager").eval()


def scored_whole(model: Any, rollout: Rollout, temperature: float) -> Tensor:
    table = model.get_input_embeddings().weight
    inputs = table[torch.cat([rollout.prompt_ids, rollout.response_ids])].clone()
    for slot, ids, weights in zip(rollout.mixture.positions, *rollout.mixture.record[:2], strict=True):
        inputs[slot] = (weights[:, None] * table[ids.long()]).sum(0)
    logits = model(inputs_embeds=inputs[None]).logits[0, len(rollout.prompt_ids) - 1 : -1]
    return (logits / temperature).log_softmax(-1)[torch.arange(rollout.length), rollout.response_ids]


def continuations(prefixes: Sequence[int]) -> list[Rollout]:
    """Of the specification's lengths, those of whole responses; the first four tokens are the same in all."""
    lengths = VECTOR["inputs"]["lengths"]
    return [
        replace(
            rollout((2, 6, 7), [8, 9, 10, 11, *range(12 + number, 8 + number + length)], key=number),
            prefix_length=given,
        )
        for number, (length, given) in enumerate(zip(lengths, prefixes, strict=True))
    ]


def first_step(path: Path, rollouts: list[Rollout]) -> tuple[PolicyUpdate, list[Tensor], float]:
    """From rewards to the gradient, at ratio 1; with the advantages and the loss."""
    algorithm = replace(ALGORITHMS["grpo"], kl_coef=0.0)
    rewards = [score(Verdict.CORRECT if right else Verdict.WRONG) for right in VECTOR["inputs"]["R"]]
    unknown: list[Any] = [None] * len(rollouts)
    nothing = PrecomputedLogProbs(unknown, unknown, unknown)
    batch = scored_batch(experience(rollouts, rewards, len(rollouts)), nothing, alone)
    samples = make_samples(rollouts, split_credit(rollouts, algorithm.assign(batch)), nothing)
    update = updater(path, algorithm, temperature=1.0)
    loss = update.accumulate(samples, Tensor.backward)["policy/loss"]
    return update, [sample.advantage for sample in samples], float(loss)


def test_vectors_of_the_loss(tiny_model_path):
    """The gradient is the vector's slopes of whole responses, 0 on the prefix, times those of a stock model."""
    outputs, given = VECTOR["outputs"], continuations(VECTOR["inputs"]["prefix"])
    update, advantages, loss = first_step(tiny_model_path, given)
    for advantage, expected in zip(advantages, outputs["A"], strict=True):
        assert advantage.flatten().tolist() == pytest.approx([expected] * advantage.numel(), abs=1e-5)
    assert sum(advantage.numel() for advantage in advantages) == outputs["tokens_counted"]
    assert loss == pytest.approx(outputs["loss_token_mean"], abs=1e-6)
    stock = stock_model(tiny_model_path)
    for made, slopes in zip(given, outputs["grad_by_response"], strict=True):
        (scored_whole(stock, made, 1.0) * torch.tensor(slopes)).sum().backward()
    expected_gradients = dict(stock.named_parameters())
    found = {name.removeprefix("lm."): p.grad for name, p in update.model.named_parameters() if p.grad is not None}
    assert found
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected_gradients[name].grad, rtol=1e-4, atol=1e-6)


def test_vectors_of_a_prefix_that_is_counted(tiny_model_path):
    """What the loss is not: the same responses, had all their tokens been generated."""
    _, _, loss = first_step(tiny_model_path, continuations([0] * 4))
    assert loss == pytest.approx(VECTOR["outputs"]["loss_if_the_prefix_were_counted"], abs=1e-6)


def ratio_by_hand(name: str, difference: Tensor) -> Tensor:
    return (difference.mean() if name == "gspo" else difference).exp().expand_as(difference)


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_is_that_of_the_generated_tokens_by_hand(tiny_model_path, rollouts, sampling, name: str):
    """The mask is written out over whole responses; the counts of tokens and L_i are those under it."""
    algorithm = replace(ALGORITHMS[name], kl_coef=0.0)
    advantages = [1.0, -1.0, math.nan, math.nan, 0.5, -0.5, 2.0, 1.5]
    samples = samples_of(rollouts, advantages)
    found = updater(tiny_model_path, algorithm, sampling.temperature)
    metrics = found.accumulate(samples, Tensor.backward)
    kept = [(sample, a) for sample, a in zip(samples, advantages, strict=True) if not math.isnan(a)]
    tokens = sum(sample.rollout.length - sample.rollout.prefix_length for sample, _ in kept)
    expected = 0.0
    for sample, advantage in kept:
        rollout = sample.rollout
        mask = torch.arange(rollout.length) >= rollout.prefix_length
        now = stock_log_probs(tiny_model_path, rollout, sampling.temperature)[mask]
        ratio = ratio_by_hand(name, now - sample.old_log_prob)
        clipped = algorithm.clip(ratio.log(), torch.full((1, len(ratio)), advantage)).loss[0]
        weight = 1 / tokens if name == "grpo" else 1 / (len(kept) * int(mask.sum()))
        expected += float((clipped * weight).sum())
    assert float(metrics["policy/loss"]) == pytest.approx(expected, abs=1e-5)
    assert float(metrics["policy/sequences"]) == 6
    assert [len(found.entropies[r.key]) for r in rollouts] == [r.generated for r in rollouts]
    assert sum(len(part) for part in found.ratios) == sum(r.generated for r in rollouts)


@pytest.mark.parametrize("name", NAMES)
def test_the_gradient_is_that_of_a_longer_prompt(tiny_model_path, rollouts, sampling, name: str):
    """The same tokens, mixtures and positions, with the prefix as the end of the prompt."""
    as_prompt = [
        replace(
            rollout,
            prompt_ids=torch.cat([rollout.prompt_ids, rollout.response_ids[: rollout.prefix_length]]),
            response_ids=rollout.response_ids[rollout.prefix_length :],
            log_probs=rollout.generated_log_probs,
            prefix_length=0,
        )
        for rollout in rollouts
    ]
    gradients = []
    for given in (rollouts, as_prompt):
        found = updater(tiny_model_path, replace(ALGORITHMS[name], kl_coef=0.0), sampling.temperature)
        found.accumulate(samples_of(given, [(-1.0) ** i for i in range(8)]), Tensor.backward)
        gradients.append(torch.cat([p.grad.flatten() for p in found.model.parameters() if p.grad is not None]))
    assert float(gradients[0].abs().max()) > 0
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=0)


def test_credit_is_of_generated_tokens(rollouts: list[Rollout]):
    made = experience(rollouts, [score(Verdict.CORRECT), score(Verdict.WRONG)] * 4, group_size=4)
    unknown: list[Any] = [None] * 8
    nothing = PrecomputedLogProbs(unknown, unknown, unknown)
    batch = scored_batch(made, nothing, alone)
    assert batch.lengths.tolist() == [r.generated for r in rollouts]
    credits = split_credit(rollouts, ALGORITHMS["grpo"].assign(batch))
    samples = make_samples(rollouts, credits, nothing)
    assert [s.advantage.shape[-1] for s in samples] == [r.generated for r in rollouts]
    assert made.tokens == sum(r.length - r.prefix_length for r in rollouts)


def test_the_critic_learns_the_states_of_generated_tokens(tiny_source, rollouts: list[Rollout]):
    model = ValueModel(tiny_source.load())
    optimizer: Callable[..., Any] = torch.optim.SGD
    update = CriticUpdate(
        model=model,
        settings=CriticSettings(optimizer, clip=None),
        exploration=STRATEGY,
        forward_passes=made_passes(model, alone, share_prompts=False),  # which would add in another order
        loss_scale=LossScale(),
        data_ranks=1,
    )
    samples = [
        Sample(r, torch.zeros(1, r.generated), old_value=torch.zeros(r.generated), returns=torch.ones(r.generated))
        for r in rollouts
    ]
    metrics = update.accumulate(samples, Tensor.backward)
    assert float(metrics["critic/tokens"]) == sum(r.generated for r in rollouts)
    assert float(metrics["critic/loss"]) == pytest.approx(0.5)
