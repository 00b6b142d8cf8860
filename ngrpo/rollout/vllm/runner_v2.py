"""Adapter of vLLM's Model Runner V2: a model state and a sampler, through hooks that vLLM has for them."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from vllm.config import CUDAGraphMode
from vllm.v1.worker.gpu.input_batch import InputBatch
from vllm.v1.worker.gpu.model_states.default import DefaultModelState
from vllm.v1.worker.gpu.sample.output import SamplerOutput

from ngrpo.rollout.records.session import to_device
from ngrpo.rollout.vllm.attachment import attachment_of
from ngrpo.rollout.vllm.burst_step import Attention
from ngrpo.rollout.vllm.bursts import Bursts
from ngrpo.rollout.vllm.private import bound_splits
from ngrpo.rollout.vllm.settings import settings_of


class MixingModelState(DefaultModelState):
    """Maps V2's request states to our addresses and fills the mixing buffers before each forward."""

    def __init__(self, vllm_config: Any, model: nn.Module, encoder_cache: Any, device: torch.device) -> None:
        super().__init__(vllm_config, model, encoder_cache, device)
        attachment = attachment_of(model)
        attachment.runner = self
        self.mixing, self.head = attachment.mixing, attachment.head
        self._addresses_host = np.full(self.max_num_reqs, -1, dtype=np.int64)
        self.addresses = torch.full((self.max_num_reqs,), -1, dtype=torch.int64, device=device)
        self._limits_host = np.zeros(self.max_num_reqs, dtype=np.int64)
        self.limits = torch.zeros(self.max_num_reqs, dtype=torch.int64, device=device)
        self._prefill_host = np.zeros(self.max_num_reqs, dtype=np.int64)
        self.prefill_lengths = torch.zeros(self.max_num_reqs, dtype=torch.int64, device=device)
        self._stale = False
        self._admitted: list[int] = []
        self._attention: Attention | None = None
        settings = settings_of(vllm_config)
        self.bursts = Bursts(self, 1 if settings is None else settings.burst)

    def reset(self) -> None:
        """Clears the device state; no request is running."""
        self.mixing.buffers.reset()
        self._addresses_host.fill(-1)
        self.addresses.fill_(-1)

    def add_request(self, req_index: int, new_req_data: Any) -> None:
        """Notes the address; a request that comes back after a preemption finds its record there."""
        super().add_request(req_index, new_req_data)
        self._addresses_host[req_index] = self.mixing.assign(new_req_data.sampling_params)
        self._prefill_host[req_index] = len(new_req_data.prefill_token_ids)
        most = new_req_data.prompt_len + (new_req_data.sampling_params.max_tokens or 0)
        self._limits_host[req_index] = min(most, self.max_model_len)
        self._admitted.append(req_index)
        self._stale = True

    def has_others(self, input_batch: InputBatch) -> bool:
        """Says whether some of a batch's rows belong to no session."""
        return bool((self._addresses_host[input_batch.idx_mapping_np] < 0).any())

    def apply_staged_writes(self) -> None:
        """Sends what belongs to new requests to the device."""
        super().apply_staged_writes()
        self.mixing.write_assigned()
        if self._stale:
            for noted, sent in (
                (self._addresses_host, self.addresses),
                (self._prefill_host, self.prefill_lengths),
                (self._limits_host, self.limits),
            ):
                sent.copy_(to_device(torch.from_numpy(noted.copy()), sent.device))
            self.bursts.ended[to_device(torch.tensor(self._admitted), self.device)] = False
            self._admitted.clear()
            self._stale = False

    def preprocess_state(self, input_batch: InputBatch, *args: Any, **kwargs: Any) -> None:
        """Fills the buffers from the records of the scheduled tokens."""
        super().preprocess_state(input_batch, *args, **kwargs)
        if not self.mixing.sessions:
            self.mixing.buffers.clear()
            return
        requests, tokens = input_batch.num_reqs, input_batch.num_tokens
        addresses = self.addresses[input_batch.idx_mapping[:requests]]
        if tokens != requests:
            lengths = input_batch.query_start_loc[: requests + 1].diff()
            addresses = torch.repeat_interleave(addresses, lengths, output_size=tokens)
        # A copy: compiled code is guarded on a view being shorter than its base, and would be compiled again.
        self.mixing.before_forward(addresses, input_batch.positions[:tokens].clone())

    def prepare_attn(
        self,
        input_batch: InputBatch,
        cudagraph_mode: Any,
        block_tables: tuple[Tensor, ...],
        slot_mappings: Tensor,
        attn_groups: list[list[Any]],
        kv_cache_config: Any,
        *args: Any,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Makes the attention's metadata, and keeps it for the further steps of a burst."""
        given = (cudagraph_mode, block_tables, slot_mappings, attn_groups, kv_cache_config)
        padded = cudagraph_mode == CUDAGraphMode.FULL
        rows = input_batch.num_reqs_after_padding if padded else input_batch.num_reqs
        bound_splits(attn_groups, rows, self.max_model_len)
        made: dict[str, Any] = super().prepare_attn(input_batch, *given, *args, **kwargs)
        self._attention = Attention(*given, made)
        return made

    def attention_metadata(self, input_batch: InputBatch, attention: Attention) -> dict[str, Any]:
        """Makes the metadata of a further step without a graph."""
        given = (attention.block_tables, attention.slot_mappings, attention.groups, attention.kv_cache_config)
        made: dict[str, Any] = super().prepare_attn(input_batch, CUDAGraphMode.NONE, *given)
        return made

    def more_steps(self, tokens: Tensor, input_batch: InputBatch) -> tuple[Tensor, Tensor] | None:
        """Makes the further steps of a burst, where the scheduler wants one (see `Bursts.go_on`)."""
        steps = self.bursts.take()
        if steps == 1:
            return None
        assert self._attention is not None
        return self.bursts.go_on(tokens, input_batch, self._attention, steps)

    def custom_sampler(self, sampler: Any) -> tuple[Any, Any]:
        """Replaces the sampler."""
        return MixingSampler(sampler, self), None


class MixingSampler:
    """Lets the sessions choose the tokens; rows of no session (warm-up, other requests) go to vLLM's sampler.

    Args:
        base: vLLM's sampler; its bookkeeping goes on.
        state: maps rows to addresses.
    """

    def __init__(self, base: Any, state: MixingModelState) -> None:
        self.base = base
        self.state = state

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)

    def __call__(self, logits: Tensor, input_batch: InputBatch) -> SamplerOutput:
        """Samples one token a row."""
        mixing, hidden = self.state.mixing, self.state.head.take()
        if not mixing.sessions:
            return self.base(logits, input_batch)
        rows = input_batch.idx_mapping
        lengths = input_batch.seq_lens[: input_batch.num_reqs].long()
        prefilled = lengths >= self.state.prefill_lengths[rows]
        addresses = self.state.addresses[rows]
        tokens = mixing.choose(logits, addresses, lengths, prefilled, hidden)
        theirs = self.base(logits, input_batch) if self.state.has_others(input_batch) else None
        if theirs is not None:
            tokens = torch.where(addresses < 0, theirs.sampled_token_ids[:, 0], tokens)
        more = self.state.more_steps(tokens, input_batch)
        if more is None:
            self.state.bursts.note_step(tokens, input_batch, lengths, prefilled)
        chosen, made = (tokens.view(-1, 1), prefilled.int()) if more is None else more
        return SamplerOutput(
            sampled_token_ids=chosen,
            logprobs_tensors=None if theirs is None else theirs.logprobs_tensors,
            num_nans=None,
            num_sampled=made,
            # vLLM counts the token that was fed as computed, and takes rejected ones off: here more were computed.
            num_rejected=torch.zeros_like(made) if more is None else 1 - made,
        )
