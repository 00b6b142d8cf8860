"""The critic's step: gradient written out, who takes part, what is logged, and that it learns."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from made_passes import made_passes
from over_ranks import alone, in_ranks
from torch import Tensor
from transformers import AutoModel
from update_probe import ALGORITHMS, CRITIC, HEAD, TOLERANCE, Case, distance, gradient

from ngrpo.errors import SettingError
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.critic import ValueModel
from ngrpo.modeling.loading import ModelSource
from ngrpo.training.critic_update import CriticSettings, CriticUpdate
from ngrpo.training.optim.loss_scale import LossScale
from ngrpo.training.samples import Sample
from ngrpo.types.rollouts import Rollout, StopReason

NAN = math.nan


@pytest.fixture
def case(make_engine, bound, requests, sampling, tiny_model_path: Path) -> Case:
    engine = make_engine()
    rollouts = engine.generate(requests[:12], sampling, bound(engine, NeighborMixing(rate=0.3)))
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, NAN, 0.0], [1.0, 1.0, 0.0, 1.0]])
    return Case(str(tiny_model_path), "ppo", sampling.temperature, 10_000, rollouts, rewards)


def slow_returns(values: list[float], end: float, reward: float, gamma: float, lam: float) -> list[float]:
    """A + V of one response, by the double sum over all later temporal differences; V is ``end`` after the last."""
    following = [*values[1:], end]
    rewards = [0.0] * (len(values) - 1) + [reward]
    deltas = [r + gamma * after - v for r, after, v in zip(rewards, following, values, strict=True)]
    return [
        sum((gamma * lam) ** (s - t) * deltas[s] for s in range(t, len(deltas))) + values[t] for t in range(len(values))
    ]


def slow_gradient(case: Case) -> dict[str, Tensor]:
    """0.5 (V - ret)^2, mean over the tokens of scored responses; stock transformers, one rollout at a time."""
    body = AutoModel.from_pretrained(case.model_path, attn_implementation="eager")
    embed = body.get_input_embeddings()
    head = torch.full((embed.embedding_dim,), HEAD, requires_grad=True)
    bias = torch.zeros(1, requires_grad=True)
    credit = ALGORITHMS["ppo"].credit
    losses = []
    for r, reward in zip(case.rollouts, case.rewards.flatten().tolist(), strict=True):
        if math.isnan(reward):
            continue
        inputs = list(embed(torch.cat([r.prompt_ids, r.response_ids])))
        for slot, ids, weights in zip(r.mixture.positions, *r.mixture.record[:2], strict=True):
            inputs[slot] = weights @ embed.weight[ids.long()]
        hidden = body(inputs_embeds=torch.stack(inputs)[None]).last_hidden_state[0, len(r.prompt_ids) - 1 :]
        *_, end = (hidden @ head + bias).tolist()
        values = (hidden @ head + bias)[:-1]
        end = end if r.stop_reason is StopReason.LENGTH else 0.0
        returns = torch.tensor(slow_returns(values.tolist(), end, reward, credit.gamma, credit.lam))
        losses.append(0.5 * (values - returns).square())
    torch.cat(losses).mean().backward()
    named = {f"critic.lm.model.{name}": p.grad for name, p in body.named_parameters()}
    return named | {"critic.head.weight": head.grad[None], "critic.head.bias": bias.grad}


def of_critic(found: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: g for name, g in found.items() if name.startswith("critic.")}


def test_the_gradient_is_that_of_the_loss_written_out(case: Case):
    expected = slow_gradient(case)
    for budget in (10_000, 60):
        found = gradient(replace(case, microbatch_tokens=budget))
        assert of_critic(found).keys() == expected.keys()
        assert distance(expected, of_critic(found)) < TOLERANCE
        assert len(found) - len(expected) > 10  # the policy's


def test_truncated_responses_end_in_the_critics_value(case: Case):
    """Of the same responses, some of which are said to have ended, the gradient is another."""
    reasons = {r.stop_reason for r in case.rollouts}
    assert reasons == {StopReason.STOP, StopReason.LENGTH}
    ended = replace(case, rollouts=[replace(r, stop_reason=StopReason.STOP) for r in case.rollouts])
    assert distance(of_critic(slow_gradient(ended)), of_critic(gradient(case))) > 1e-3


def test_the_comparison_can_fail(case: Case):
    expected = of_critic(gradient(case))
    other = replace(case, rewards=case.rewards.nan_to_num(0.0))
    assert distance(expected, of_critic(gradient(other))) > 1e-2


@pytest.fixture
def samples(case: Case) -> list[Sample]:
    """Old values 0, returns 1, except for one unscored response and one that the policy leaves out."""
    made = []
    for i, r in enumerate(case.rollouts):
        returns = torch.full((r.length,), NAN if i == 1 else 1.0)
        advantage = torch.full((1, r.length), NAN if i < 3 else 0.5)
        made.append(Sample(r, advantage, old_value=torch.zeros(r.length), returns=returns))
    return made


def load(case: Case) -> ValueModel:
    return ValueModel(ModelSource(case.model_path).load())


def update(case: Case, reduce=alone, ranks: int = 1, model: ValueModel | None = None, **settings) -> CriticUpdate:
    model = model or load(case)
    return CriticUpdate(
        model=model,
        settings=replace(CRITIC, **settings),
        exploration=NeighborMixing(),
        forward_passes=made_passes(model, reduce),
        loss_scale=LossScale(),
        data_ranks=ranks,
    )


def values_of(found: CriticUpdate, rollouts: list[Rollout]) -> Tensor:
    """V of the state before each response token."""
    made = found.forward_passes.by_rollout(found.model, lambda batch: found.model(batch, NeighborMixing()), rollouts)
    return torch.cat(made)


def test_unscored_responses_take_no_part(case: Case, samples: list[Sample]):
    """At values of 0 and returns of 1 the loss is 0.5 a token, and its gradient in the bias -1."""
    found = update(case)
    metrics = found.accumulate(samples, Tensor.backward)
    assert float(metrics["critic/loss"]) == pytest.approx(0.5)
    assert float(found.model.head.bias.grad) == pytest.approx(-1.0)
    assert float(metrics["critic/clip_fraction"]) == 0.0


def test_nothing_scored_moves_nothing(case: Case, samples: list[Sample]):
    unscored = [replace(s, returns=s.returns * NAN) for s in samples]
    found = update(case)
    optimizer = torch.optim.AdamW(found.model.parameters(), lr=0.1, weight_decay=0.1)
    found.step(samples, optimizer, Tensor.backward)
    before = [p.clone() for p in found.model.parameters()]
    metrics = found.step(unscored, optimizer, Tensor.backward)
    assert float(metrics["critic/loss"]) == float(metrics["critic/grad_norm"]) == float(metrics["critic/tokens"]) == 0
    assert all(torch.equal(p, q) for p, q in zip(found.model.parameters(), before, strict=True))


def test_ranks_normalise_by_the_tokens_of_all(case: Case, samples: list[Sample]):
    whole = update(case).accumulate(samples, Tensor.backward)

    def part(given: tuple[ValueModel, list[Sample]], reduce) -> tuple[float, float]:
        model, chosen = given
        found = update(case, reduce, ranks=2, model=model)
        metrics = found.accumulate(chosen, Tensor.backward)
        return float(metrics["critic/loss"]), float(found.model.head.bias.grad)

    # Loaded outside of the threads: while transformers loads, it replaces methods of its classes for all of them.
    (one, two) = in_ranks(part, [(load(case), samples[:6]), (load(case), samples[6:])])
    assert one[0] == two[0] == pytest.approx(float(whole["critic/loss"]))
    assert (one[1] + two[1]) / 2 == pytest.approx(-1.0)  # the ranks' gradients are averaged


def test_explained_variance(case: Case, samples: list[Sample]):
    generator = torch.Generator().manual_seed(0)
    known = []
    for s in samples:
        returns = torch.where(s.returns.isnan(), s.returns, torch.rand(s.rollout.length, generator=generator))
        noise = 0.1 * torch.randn(s.rollout.length, generator=generator)
        known.append(replace(s, returns=returns, old_value=returns.nan_to_num(5.0) + noise + 2.0))
    scored = [s for s in known if not s.returns.isnan().any()]
    returns, values = torch.cat([s.returns for s in scored]), torch.cat([s.old_value for s in scored])
    found = update(case).begin(known)
    expected = 1 - float((returns - values).var()) / float(returns.var())
    assert 0.8 < expected < 0.95
    assert float(found["critic/explained_variance"]) == pytest.approx(expected, rel=1e-4)
    assert float(found["critic/value_mean"]) == pytest.approx(float(values.mean()), rel=1e-4)
    assert float(found["critic/return_mean"]) == pytest.approx(float(returns.mean()), rel=1e-4)


def test_equal_returns_have_no_variance_to_explain(case: Case, samples: list[Sample]):
    assert "critic/explained_variance" not in update(case).begin(samples)


def test_it_learns_a_constant_reward(case: Case, samples: list[Sample]):
    """Without clipping, since the old values of this test stay where they were."""
    found = update(case, clip=None)
    optimizer = torch.optim.AdamW(found.model.parameters(), lr=1e-2)
    losses = [float(found.step(samples, optimizer, Tensor.backward)["critic/loss"]) for _ in range(30)]
    assert losses[0] == pytest.approx(0.5)
    assert losses[-1] < 0.01
    values = values_of(found, [s.rollout for s in samples])
    assert float((values - 1.0).abs().mean()) < 0.15


def test_the_clip_keeps_values_near_the_old_ones(case: Case, samples: list[Sample]):
    found = update(case, clip=0.2)
    optimizer = torch.optim.SGD(found.model.parameters(), lr=0.05)
    clipped = [float(found.step(samples, optimizer, Tensor.backward)["critic/clip_fraction"]) for _ in range(20)]
    assert clipped[0] == 0.0
    assert clipped[-1] > 0.5
    scored = [s.rollout for s in samples if not s.returns.isnan().any()]
    assert float(values_of(found, scored).mean()) < 0.6


@pytest.mark.parametrize("settings", [{"clip": 0.0}, {"max_grad_norm": -1.0}])
def test_settings_are_checked(settings: dict[str, float]):
    (name,) = settings
    with pytest.raises(SettingError, match=rf"critic\.{name}="):
        CriticSettings(partial(torch.optim.SGD, lr=0.1), **settings)
