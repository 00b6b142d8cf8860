"""Adapter of vLLM's Model Runner V2: a model state and a sampler, through hooks that vLLM has for them."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from vllm.v1.worker.gpu.input_batch import InputBatch
from vllm.v1.worker.gpu.model_states.default import DefaultModelState
from vllm.v1.worker.gpu.sample.output import SamplerOutput

from ngrpo.rollout.records.session import to_device
from ngrpo.rollout.vllm.attachment import attachment_of


class MixingModelState(DefaultModelState):
    """Maps V2's request states to our addresses and fills the mixing buffers before each forward."""

    def __init__(self, vllm_config: Any, model: nn.Module, encoder_cache: Any, device: torch.device) -> None:
        super().__init__(vllm_config, model, encoder_cache, device)
        attachment = attachment_of(model)
        attachment.runner = self
        self.mixing, self.head = attachment.mixing, attachment.head
        self._addresses_host = np.full(self.max_num_reqs, -1, dtype=np.int64)
        self.addresses = torch.full((self.max_num_reqs,), -1, dtype=torch.int64, device=device)
        self._prefill_host = np.zeros(self.max_num_reqs, dtype=np.int64)
        self.prefill_lengths = torch.zeros(self.max_num_reqs, dtype=torch.int64, device=device)
        self._stale = False

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
        self._stale = True

    def apply_staged_writes(self) -> None:
        """Sends what belongs to new requests to the device."""
        super().apply_staged_writes()
        self.mixing.write_assigned()
        if self._stale:
            for noted, sent in ((self._addresses_host, self.addresses), (self._prefill_host, self.prefill_lengths)):
                sent.copy_(to_device(torch.from_numpy(noted.copy()), sent.device))
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

    def custom_sampler(self, sampler: Any) -> tuple[Any, Any]:
        """Replaces the sampler."""
        return MixingSampler(sampler, self), None


class MixingSampler:
    """Lets the sessions choose the tokens; what has no session (warm-up, other requests) goes to vLLM's sampler.

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
        tokens = mixing.choose(logits, self.state.addresses[rows], lengths, prefilled, hidden)
        return SamplerOutput(
            sampled_token_ids=tokens.view(-1, 1),
            logprobs_tensors=None,
            num_nans=None,
            num_sampled=prefilled.int(),
            num_rejected=torch.zeros_like(prefilled, dtype=torch.int32),
        )
