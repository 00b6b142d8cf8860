"""The input embedding that mixes, inside vLLM's compiled and captured forward."""

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from vllm.distributed import tensor_model_parallel_all_gather, tensor_model_parallel_all_reduce
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    UnquantizedEmbeddingMethod,
    VocabParallelEmbedding,
    get_masked_input_and_mask,
)

from ngrpo.rollout.records.buffers import MixingBuffers


class UnmixableModelError(ValueError):
    """Why mixtures cannot enter a model, in words that follow its name."""


class MixingEmbedding(VocabParallelEmbedding):
    """A vLLM input embedding whose mixed tokens are sum_j w_j E[id_j], or vectors from the buffers.

    Under tensor parallelism each rank mixes the rows that it holds, so that one all-reduce serves as before. What a
    model does after the lookup, such as Gemma's scaling, it does to mixtures too, as in the trainer's replay.

    Args:
        base: the embedding whose place this one takes; it shares its parameter, and so a tied head keeps its weight.
        buffers: what the next forward feeds.
    """

    def __init__(self, base: VocabParallelEmbedding, buffers: MixingBuffers) -> None:
        with torch.device("meta"):
            super().__init__(
                base.num_embeddings,
                base.embedding_dim,
                params_dtype=base.params_dtype,
                org_num_embeddings=base.org_vocab_size,
                padding_size=base.padding_size,
                disable_tp=base.disable_tp,
                quant_method=base.quant_method,
                parallel_group=base.parallel_group,
            )
        self.weight = base.weight
        self.quant_method.process_weights_after_loading(self)  # for models whose head is this very module
        self.buffers_ = buffers
        self.train(base.training)

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


def input_embedding(model: nn.Module) -> VocabParallelEmbedding:
    """Returns the input embedding of a loaded vLLM model: its only embedding of a vocabulary that is no head.

    It is found by its type, as vLLM itself finds it where it ties heads: its name differs from model to model.

    Raises:
        UnmixableModelError: there is none, there are several, or it is of a kind that cannot mix.
    """
    found = [
        module
        for module in model.modules()
        if isinstance(module, VocabParallelEmbedding) and not isinstance(module, ParallelLMHead)
    ]
    if len(found) != 1:
        raise UnmixableModelError(f"it has {len(found) or 'no'} embeddings of a vocabulary that mixtures could enter")
    (module,) = found
    if type(module) not in (VocabParallelEmbedding, MixingEmbedding):
        raise UnmixableModelError(f"its input embedding is of type {type(module).__name__}")
    if not isinstance(module.quant_method, UnquantizedEmbeddingMethod):
        raise UnmixableModelError("its input embedding is quantised")
    if not getattr(module, "reduce_results", True) or module.parallel_group is not None:
        raise UnmixableModelError("its input embedding is shared among ranks in a way of its own")
    return module


def install(model: nn.Module, buffers: MixingBuffers) -> MixingEmbedding:
    """Puts a mixing embedding in the place of a loaded model's input embedding; call before anything is compiled.

    The names and the values of all parameters stay.

    Raises:
        UnmixableModelError: see `input_embedding`.
    """
    base = input_embedding(model)
    made = MixingEmbedding(base, buffers)
    for path, module in list(model.named_modules(remove_duplicate=False)):
        if module is base:
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, made)
    return made
