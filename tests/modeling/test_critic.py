"""Values and their gradient against stock transformers, one rollout at a time."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import AutoModel

from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.critic import ValueModel
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.packing import pack
from ngrpo.types.rollouts import Rollout

MIXING = NeighborMixing(rate=0.4)


@pytest.fixture
def rollouts(make_engine, bound, requests, sampling) -> list[Rollout]:
    engine = make_engine()
    made = engine.generate(requests[:8], sampling, bound(engine, MIXING))
    assert sum(len(r.mixture.positions) for r in made) > 10
    return made


@pytest.fixture
def critic(tiny_source: ModelSource) -> ValueModel:
    """With a head that is not zero."""
    model = ValueModel(tiny_source.load())
    torch.manual_seed(2)
    torch.nn.init.normal_(model.head.weight)
    torch.nn.init.normal_(model.head.bias)
    return model


def slow_values(critic: ValueModel, body: torch.nn.Module, rollouts: Sequence[Rollout]) -> Tensor:
    """V of the state before each token: the output row of the slot before it."""
    found = []
    table = body.get_input_embeddings().weight
    for r in rollouts:
        inputs = list(body.get_input_embeddings()(torch.cat([r.prompt_ids, r.response_ids])))
        for slot, ids, weights in zip(r.mixture.positions, *r.mixture.record[:2], strict=True):
            inputs[slot] = weights @ table[ids.long()]
        hidden = body(inputs_embeds=torch.stack(inputs)[None]).last_hidden_state[0]
        found += [hidden[len(r.prompt_ids) - 1 + t] @ critic.head.weight[0] + critic.head.bias for t in range(r.length)]
    return torch.cat(found)


def test_values_and_gradient_are_those_of_single_rollouts(
    critic: ValueModel, rollouts: list[Rollout], tiny_source: ModelSource
):
    body = AutoModel.from_pretrained(tiny_source.path, attn_implementation="eager")
    targets = torch.randn(sum(r.length for r in rollouts), generator=torch.Generator().manual_seed(3))
    expected = slow_values(critic, body, rollouts)
    (expected - targets).square().sum().backward()
    head = [critic.head.weight.grad.clone(), critic.head.bias.grad.clone()]
    critic.zero_grad()

    found = critic(pack(rollouts), MIXING)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    (found - targets).square().sum().backward()
    torch.testing.assert_close([critic.head.weight.grad, critic.head.bias.grad], head, atol=1e-3, rtol=1e-4)
    slow = dict(body.named_parameters())
    for name, parameter in critic.lm.named_parameters():
        torch.testing.assert_close(parameter.grad, slow[name.removeprefix("model.")].grad, atol=1e-3, rtol=1e-3)


def test_the_value_after_the_last_token_comes_last(critic: ValueModel, rollouts: list[Rollout]):
    before, around = critic(pack(rollouts), MIXING), critic(pack(rollouts), MIXING, last=True)
    parts = around.split([r.length + 1 for r in rollouts])
    torch.testing.assert_close(torch.cat([part[:-1] for part in parts]), before)
    for r, part in zip(rollouts, parts, strict=True):
        # With one more token the state after the last is one before a token.
        longer = replace(
            r,
            response_ids=torch.cat((r.response_ids, torch.tensor([7]))),
            log_probs=torch.cat((r.log_probs, torch.zeros(1))),
        )
        torch.testing.assert_close(part, critic(pack([longer]), MIXING), atol=1e-5, rtol=1e-4)


def test_the_head_starts_at_zero_and_there_is_no_other(tiny_source: ModelSource, rollouts: list[Rollout]):
    critic = ValueModel(tiny_source.load())
    assert critic(pack(rollouts), MIXING).abs().max() == 0.0
    names = {name for name, _ in critic.named_parameters()}
    assert {"head.weight", "head.bias", "lm.model.embed_tokens.weight"} <= names
    assert not any("lm_head" in name for name in names)


def test_a_bfloat16_critic_sums_in_float32(tiny_source: ModelSource, rollouts: list[Rollout]):
    critic = ValueModel(ModelSource(tiny_source.path, dtype="bfloat16").load())
    assert {p.dtype for p in critic.parameters()} == {torch.bfloat16}
    torch.nn.init.ones_(critic.head.weight)
    batch = pack(rollouts)
    with torch.autocast("cpu", torch.bfloat16):
        values = critic(batch, MIXING)
        states = critic.scored_states(batch, MIXING)
    torch.testing.assert_close(values, states.float().sum(-1), atol=1e-4, rtol=1e-5)
