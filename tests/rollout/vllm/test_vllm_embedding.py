"""The mixing input embedding, held to an explicit sum."""

import pytest
import torch
from torch import Tensor, nn

from ngrpo.rollout.records.buffers import MixingBuffers

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm

VOCABULARY, WIDTH, DIM, TOKENS = 10, 3, 4, 8


class Model(nn.Module):
    """A model by the names of GPT-2: nothing may depend on those of Llama."""

    def __init__(self, *embeddings: nn.Module) -> None:
        super().__init__()
        self.transformer = nn.Module()
        self.transformer.tables = nn.ModuleList(embeddings)


@pytest.fixture
def as_rank(monkeypatch):
    """vLLM's layers without the process groups that they ask for their rank."""
    from vllm.model_executor.layers import vocab_parallel_embedding as layers

    def set_rank(rank: int, ranks: int) -> None:
        monkeypatch.setattr(layers, "get_tensor_model_parallel_rank", lambda: rank)
        monkeypatch.setattr(layers, "get_tensor_model_parallel_world_size", lambda: ranks)

    set_rank(0, 1)
    return set_rank


def vllm_embedding(table: Tensor) -> nn.Module:
    """This rank's part of a table, filled as vLLM fills it."""
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

    module = VocabParallelEmbedding(VOCABULARY, DIM, params_dtype=table.dtype, padding_size=16)
    module.weight_loader(module.weight, table)
    return module


def shard(table: Tensor, buffers: MixingBuffers) -> nn.Module:
    from ngrpo.rollout.vllm.embedding import install

    return install(Model(vllm_embedding(table)), buffers)


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
def test_mixed_tokens_are_sums_of_rows_whichever_rank_holds_them(monkeypatch, as_rank, ranks):
    from ngrpo.rollout.vllm import embedding

    monkeypatch.setattr(embedding, "tensor_model_parallel_all_reduce", lambda partial: partial)
    table = torch.randn(VOCABULARY, DIM, generator=torch.Generator().manual_seed(0))
    buffers = filled_buffers()
    tokens = [9, 0, 3, 5, 7]

    def embedded() -> Tensor:
        parts = []
        for rank in range(ranks):
            as_rank(rank, ranks)
            parts.append(shard(table, buffers)(torch.tensor(tokens)))
        return sum(parts)

    torch.testing.assert_close(embedded(), explicit(table, tokens, buffers))
    buffers.tensors.mixed.zero_()
    assert torch.equal(embedded(), table[tokens])


def test_parameters_and_a_tied_head_stay(as_rank):
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

    from ngrpo.rollout.vllm.embedding import MixingEmbedding, input_embedding, install

    base = vllm_embedding(torch.randn(VOCABULARY, DIM))
    model = Model(base, base)  # a head may be the very module
    model.head = ParallelLMHead(VOCABULARY, DIM, params_dtype=base.params_dtype, padding_size=16).tie_weights(base)
    before = {name: (id(parameter), parameter.data_ptr()) for name, parameter in model.named_parameters()}
    made = install(model, filled_buffers())
    assert type(made) is MixingEmbedding
    assert {name: (id(parameter), parameter.data_ptr()) for name, parameter in model.named_parameters()} == before
    assert model.head.weight is made.weight
    assert all(table is made for table in model.transformer.tables)
    assert input_embedding(model) is made
    assert vars(base).keys() - vars(made).keys() == set()
    logits = made.quant_method.apply(made, torch.eye(DIM))
    torch.testing.assert_close(logits[:, :VOCABULARY], made.table().T)


def embeddings_that_cannot_mix() -> dict[str, tuple[nn.Module, ...]]:
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

    class Scaled(VocabParallelEmbedding):
        def forward(self, ids: Tensor) -> Tensor:
            return super().forward(ids) * 2

    def other(**changes) -> nn.Module:
        module = vllm_embedding(torch.zeros(VOCABULARY, DIM))
        vars(module).update(changes)
        return module

    scaled = Scaled(VOCABULARY, DIM, params_dtype=torch.float32, padding_size=16)
    return {
        "no embeddings of a vocabulary": (nn.Embedding(4, 2),),
        "2 embeddings of a vocabulary": (other(), other()),
        "its input embedding is of type Scaled": (scaled,),
        "its input embedding is quantised": (other(quant_method=object()),),
        "shared among ranks in a way of its own": (other(parallel_group=object()),),
    }


@pytest.mark.parametrize("index", range(5))
def test_an_embedding_that_cannot_mix_is_refused(as_rank, index):
    from ngrpo.rollout.vllm.embedding import UnmixableModelError, install

    reason, modules = list(embeddings_that_cannot_mix().items())[index]
    with pytest.raises(UnmixableModelError, match=reason):
        install(Model(*modules), filled_buffers())
