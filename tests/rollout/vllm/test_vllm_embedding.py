"""The mixing input embedding, held to an explicit sum."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from ngrpo.rollout.records.buffers import MixingBuffers

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm

VOCABULARY, WIDTH, DIM, TOKENS = 10, 3, 4, 8


def shard(table: Tensor, rank: int, ranks: int, buffers: MixingBuffers) -> nn.Module:
    """A rank's part of ``table``, made without the process group that vLLM's constructor asks for."""
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

    from ngrpo.rollout.vllm.embedding import install

    module = VocabParallelEmbedding.__new__(VocabParallelEmbedding)
    nn.Module.__init__(module)
    padded = 16
    module.tp_size = ranks
    module.shard_indices = VocabParallelEmbedding._get_indices(padded, padded, VOCABULARY, VOCABULARY, rank, ranks)
    rows = padded // ranks
    whole = torch.cat([table, torch.zeros(padded - VOCABULARY, DIM)])
    module.weight = nn.Parameter(whole[rank * rows : (rank + 1) * rows], requires_grad=False)
    return install(SimpleNamespace(model=SimpleNamespace(embed_tokens=module)), buffers)


def filled_buffers() -> MixingBuffers:
    buffers = MixingBuffers(TOKENS, WIDTH, torch.device("cpu"))
    mixed, ids, weights, _ = buffers.tensors
    mixed[:5] = torch.tensor([True, False, True, True, False])
    ids[:5] = torch.tensor([[1, 2, 9], [3, 4, 5], [8, 0, 7], [6, 6, 1], [2, 2, 2]])
    weights[:3] = torch.tensor([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0], [0.1, 0.2, 0.7]])
    weights[3:5] = torch.tensor([[0.6, 0.3, 0.1], [0.4, 0.3, 0.3]])
    return buffers


def explicit(table: Tensor, tokens: list[int], buffers: MixingBuffers) -> Tensor:
    rows = []
    mixed, ids, weights, _ = buffers.tensors
    for index, token in enumerate(tokens):
        pairs = zip(ids[index].tolist(), weights[index].tolist(), strict=True)
        rows.append(sum(w * table[i] for i, w in pairs) if mixed[index] else table[token])
    return torch.stack(rows)


@pytest.fixture(autouse=True)
def _eager():
    """vLLM compiles the masking of other ranks' rows, which takes a while."""
    with torch.compiler.set_stance("force_eager"):
        yield


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_mixed_tokens_are_sums_of_rows_whichever_rank_holds_them(monkeypatch, ranks):
    from ngrpo.rollout.vllm import embedding

    monkeypatch.setattr(embedding, "tensor_model_parallel_all_reduce", lambda partial: partial)
    table = torch.randn(VOCABULARY, DIM, generator=torch.Generator().manual_seed(0))
    buffers = filled_buffers()
    tokens = [9, 0, 3, 5, 7]
    parts = [shard(table, rank, ranks, buffers)(torch.tensor(tokens)) for rank in range(ranks)]
    torch.testing.assert_close(sum(parts), explicit(table, tokens, buffers))
    buffers.tensors.mixed.zero_()
    parts = [shard(table, rank, ranks, buffers)(torch.tensor(tokens)) for rank in range(ranks)]
    assert torch.equal(sum(parts), table[tokens])


def test_an_embedding_of_another_kind_is_refused():
    from ngrpo.rollout.vllm.embedding import install

    model = SimpleNamespace(model=SimpleNamespace(embed_tokens=nn.Embedding(4, 2)))
    with pytest.raises(ValueError, match="cannot mix in an input embedding of type Embedding"):
        install(model, filled_buffers())
