"""Replayed inputs against the sum written out, forwards and backwards."""

import torch
from made_rollouts import rollout
from torch import Tensor, nn

from ngrpo.exploration.base import RowContext, Step
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
