"""Replayed inputs against the sum written out, forwards and backwards."""

from dataclasses import replace

import torch
from made_rollouts import rollout
from torch import Tensor, nn

from ngrpo.exploration.base import RowContext, Step
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gaussian_top_k import GaussianTopK
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.packing import PackedBatch, pack
from ngrpo.modeling.replay import replay

# Token 1 stands at a mixed slot only, token 7 nowhere; id 2 is mixed twice and is a plain token as well.
BATCH = pack([rollout([0, 2], [3, 1, 2], {3: {4: 0.75, 2: 0.25}}), rollout([5], [6], {1: {2: 0.6, 6: 0.4}})])

NOWHERE = RowContext(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), torch.zeros(0, 5))


class Scaled(nn.Embedding):
    """Multiplies its rows, as Gemma's does."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) * 3.0


def embedding(kind: type[nn.Embedding] = nn.Embedding, dtype: torch.dtype = torch.float32) -> nn.Embedding:
    torch.manual_seed(0)
    return kind(8, 5, dtype=dtype)


def replayed(embed: nn.Embedding, batch: PackedBatch = BATCH) -> Tensor:
    return replay(embed, batch, NeighborMixing(k=2), {})


def explicit(rows: Tensor) -> Tensor:
    """The inputs of BATCH, [7, d]."""
    mixtures = [0.75 * rows[4] + 0.25 * rows[2], 0.6 * rows[2] + 0.4 * rows[6]]
    return torch.stack([rows[0], rows[2], rows[3], mixtures[0], rows[2], rows[5], mixtures[1]])


def test_inputs_are_the_explicit_sum():
    embed = embedding()
    torch.testing.assert_close(replayed(embed), explicit(embed.weight))


def test_the_embedding_modules_own_scale_applies():
    embed = embedding(Scaled)
    torch.testing.assert_close(replayed(embed), explicit(embed.weight * 3.0))


def test_without_mixtures_the_inputs_are_the_embeddings():
    embed = embedding()
    plain = pack([rollout([0, 2], [3])])
    assert torch.equal(replayed(embed, plain), embed.weight[[0, 2, 3]])


def test_gradient_reaches_every_mixed_id_with_its_weight_and_nothing_else():
    embed = embedding()
    upstream = torch.randn(7, 5)
    replayed(embed).backward(upstream)
    expected = torch.zeros(8, 5)
    for slot, token in ((0, 0), (1, 2), (2, 3), (4, 2), (5, 5)):
        expected[token] += upstream[slot]
    for slot, token, weight in ((3, 4, 0.75), (3, 2, 0.25), (6, 2, 0.6), (6, 6, 0.4)):
        expected[token] += weight * upstream[slot]
    torch.testing.assert_close(embed.weight.grad, expected)
    assert not embed.weight.grad[[1, 7]].any()


def test_bfloat16_rows_are_summed_in_float32():
    embed = embedding(dtype=torch.bfloat16)
    ids = torch.arange(8).view(1, 8)
    weights = torch.linspace(0.05, 0.2, 8).view(1, 8)
    exact = (weights[0, :, None].double() * embed.weight.double()).sum(0)
    mixed = NeighborMixing(k=8).inputs(embed, Step(ids[:, 0], ids[:, 0] >= 0, ids, weights), NOWHERE, {})
    assert mixed.dtype == torch.bfloat16
    assert torch.equal(mixed[0], exact.bfloat16())


def test_a_detached_strategy_gives_the_mixed_rows_no_gradient():
    embed, upstream = embedding(), torch.randn(7, 5)
    scores = torch.zeros(2, 2)
    batch = replace(BATCH, record=BATCH.record._replace(scores=scores))
    strategy = GumbelSoftThinking(top_k=2)
    made = replay(embed, batch, strategy, {})
    torch.testing.assert_close(made, explicit(embed.weight))
    made.backward(upstream)
    expected = torch.zeros(8, 5)
    for slot, token in ((0, 0), (1, 2), (2, 3), (4, 2), (5, 5)):
        expected[token] += upstream[slot]
    torch.testing.assert_close(embed.weight.grad, expected)


def test_noise_is_added_before_the_cast_and_vectors_replace_the_sum():
    embed = embedding(dtype=torch.bfloat16)
    noisy = replace(BATCH, record=BATCH.record._replace(noise=torch.tensor([0.5, 0.25])))
    made = replay(embed, noisy, GaussianTopK(k=2), {})
    table = embed.weight.float()
    noise = noisy.context(noisy.mixed_slots, table).noise(5)
    exact = explicit(table)[[3, 6]] + torch.tensor([[0.5], [0.25]]) * noise
    assert torch.equal(made[[3, 6]], exact.bfloat16())
    given = torch.randn(2, 5)
    dense = replace(BATCH, record=BATCH.record._replace(vector=given))
    assert torch.equal(replay(embed, dense, GaussianSoftTokens(), {})[[3, 6]], given.bfloat16())


def test_learned_parameters_have_a_gradient_of_zero_where_nothing_is_mixed():
    strategy, embed = HybridReasoning(), embedding()
    learned = {name: value.requires_grad_() for name, value in strategy.initial_parameters(5).items()}
    plain = pack([rollout([0, 2], [3])])
    plain = replace(plain, record=plain.record._replace(vector=torch.zeros(0, 5)))
    replay(embed, plain, strategy, learned).sum().backward()
    assert all(value.grad is not None and not value.grad.any() for value in learned.values())
