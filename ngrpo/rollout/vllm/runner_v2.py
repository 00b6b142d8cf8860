"""Adapter of vLLM's Model Runner V2: a model state and a sampler, through hooks that vLLM has for them."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from vllm.v1.worker.gpu import model_states
from vllm.v1.worker.gpu.input_batch import InputBatch, get_num_sampled_and_rejected
from vllm.v1.worker.gpu.model_states.default import DefaultModelState
from vllm.v1.worker.gpu.sample.output import SamplerOutput

from ngrpo.rollout.records.session import to_device
from ngrpo.rollout.vllm.mixing_state import MixingState
from ngrpo.rollout.vllm.settings import settings_of


class MixingModelState(DefaultModelState):
    """Maps V2's request states to our addresses and fills the mixing buffers before each forward."""

    def __init__(self, vllm_config: Any, model: nn.Module, encoder_cache: Any, device: torch.device) -> None:
        super().__init__(vllm_config, model, encoder_cache, device)
        settings = settings_of(vllm_config)
        assert settings is not None
        largest_graph = vllm_config.compilation_config.max_cudagraph_capture_size or 0
        self.mixing = MixingState(model, settings, max(self.max_num_tokens, largest_graph), device)
        self._addresses_host = np.full(self.max_num_reqs, -1, dtype=np.int64)
        self.addresses = torch.full((self.max_num_reqs,), -1, dtype=torch.int64, device=device)
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
        self._stale = True

    def apply_staged_writes(self) -> None:
        """Sends what belongs to new requests to the device."""
        super().apply_staged_writes()
        self.mixing.write_assigned()
        if self._stale:
            addresses = torch.from_numpy(self._addresses_host.copy())
            self.addresses.copy_(to_device(addresses, self.addresses.device))
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
        mixing = self.state.mixing
        if not mixing.sessions:
            return self.base(logits, input_batch)
        prefill_length = self.base.req_states.prefill_len.gpu
        states = input_batch.idx_mapping
        lengths = input_batch.seq_lens[: input_batch.num_reqs]
        prefilled = lengths >= prefill_length[states]
        tokens = mixing.choose(logits, self.state.addresses[states], lengths.long(), prefilled)
        sampled, rejected = get_num_sampled_and_rejected(
            lengths.new_ones(input_batch.num_reqs),
            input_batch.seq_lens,
            input_batch.cu_num_logits,
            states,
            prefill_length,
        )
        return SamplerOutput(
            sampled_token_ids=tokens.view(-1, 1),
            logprobs_tensors=None,
            num_nans=None,
            num_sampled=sampled,
            num_rejected=rejected,
        )


def install() -> None:
    """Gives our engines their model state; other engines in the process are not changed. Safe to call again."""
    resolve = model_states.resolve_model_state_cls
    if getattr(resolve, "ngrpo", False):
        return

    def resolved(vllm_config: Any, model: nn.Module) -> Any:
        theirs = resolve(vllm_config, model)
        if settings_of(vllm_config) is None:
            return theirs
        if theirs is not DefaultModelState:
            raise ValueError(f"rollout=vllm does not support models with state {theirs.__name__}")
        return MixingModelState

    resolved.ngrpo = True  # type: ignore[attr-defined]
    model_states.resolve_model_state_cls = resolved
