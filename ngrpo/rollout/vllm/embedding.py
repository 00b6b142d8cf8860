"""The input embedding that mixes, inside vLLM's compiled and captured forward."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding
from vllm.distributed import tensor_model_parallel_all_gather, tensor_model_parallel_all_reduce
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding, get_masked_input_and_mask

from ngrpo.rollout.records.buffers import MixingBuffers


class MixingEmbedding(VocabParallelEmbedding):
    """A vLLM input embedding whose mixed tokens are sum_j w_j E[id_j], or vectors from the buffers.

    An existing embedding becomes one by `install`: its parameters keep their names and a tied head keeps its weight.
    Under tensor parallelism each rank mixes the rows that it holds, so that one all-reduce serves as before.
    """

    buffers_: MixingBuffers

    def forward(self, input_: Tensor) -> Tensor:
        """Embeds token ids [T] -> [T, d], or [1, T] -> [1, T, d]: so vLLM calls models that it runs by transformers."""
        if input_.dim() > 1:
            return self.forward(input_[0])[None]
        tokens = input_.shape[0]
        buffers = self.buffers_.tensors
        if buffers.vectors is not None:
            plain = self._whole(self._local_rows(input_))
            return torch.where(buffers.mixed[:tokens, None], buffers.vectors[:tokens], plain)
        rows = self._local_rows(buffers.ids[:tokens])
        mixture = (buffers.weights[:tokens, :, None] * rows.float()).sum(1).to(rows.dtype)
        return self._whole(torch.where(buffers.mixed[:tokens, None], mixture, self._local_rows(input_)))

    def table(self) -> Tensor:
        """Returns the whole table [V, d], without padding; a collective under tensor parallelism, else a view."""
        whole = self.weight.data if self.tp_size == 1 else tensor_model_parallel_all_gather(self.weight.data, dim=0)
        return whole[: self.org_vocab_size]

    def _whole(self, output: Tensor) -> Tensor:
        return output if self.tp_size == 1 else tensor_model_parallel_all_reduce(output)

    def _local_rows(self, ids: Tensor) -> Tensor:
        """Returns this rank's rows of ``ids``, zero for those that another rank holds."""
        if self.tp_size == 1:
            return embedding(ids.long(), self.weight)
        shard = self.shard_indices
        local, masked = get_masked_input_and_mask(
            ids,
            shard.org_vocab_start_index,
            shard.org_vocab_end_index,
            shard.num_org_vocab_padding,
            shard.added_vocab_start_index,
            shard.added_vocab_end_index,
        )
        return embedding(local.long(), self.weight).masked_fill(masked[..., None], 0)


def input_embedding(model: Any) -> Any:
    """Returns the input embedding of a loaded vLLM model."""
    return model.model.embed_tokens


def install(model: Any, buffers: MixingBuffers) -> MixingEmbedding:
    """Makes the input embedding of a loaded vLLM model a mixing one; call before anything is compiled.

    Raises:
        ValueError: the model's embedding is of an unknown kind.
    """
    module = input_embedding(model)
    if type(module) is not VocabParallelEmbedding:
        raise ValueError(f"cannot mix in an input embedding of type {type(module).__name__}")
    module.__class__ = MixingEmbedding
    module.buffers_ = buffers
    made: MixingEmbedding = module
    return made
