"""One step of a burst: the forward of a batch that stands, and what lies between it and the next."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from vllm.config import CUDAGraphMode
from vllm.forward_context import set_forward_context
from vllm.v1.worker.gpu.input_batch import InputBatch

from ngrpo.rollout.vllm.burst_rows import BurstRows, advance, note
from ngrpo.rollout.vllm.private import DecodeRunner, slots_by_layer

if TYPE_CHECKING:
    from ngrpo.rollout.vllm.runner_v2 import MixingModelState

_compiled_note = torch.compile(note, dynamic=True)
_compiled_advance = torch.compile(advance, dynamic=True)


@dataclass(frozen=True)
class Attention:
    """What ``prepare_attn`` of a model state was given for a batch, and the metadata that it made."""

    mode: CUDAGraphMode
    block_tables: tuple[Tensor, ...]
    slot_mappings: Tensor
    groups: list[list[Any]]
    kv_cache_config: Any
    metadata: dict[str, Any]

    def updatable(self) -> bool:
        """Says whether the metadata can be brought up to date on the device, as vLLM's own drafting does it."""
        return all(group.supports_draft_decode_metadata_update for groups in self.groups for group in groups)

    def update(self) -> None:
        """Brings the metadata up to date with lengths that have changed in place."""
        for groups in self.groups:
            for group in groups:
                group.update_draft_decode_metadata(self.metadata)


class BurstStep:
    """The steps of one burst, which differ in what stands on the device alone.

    Args:
        state: the model state.
        runner: vLLM's.
        rows: the burst's; more than the batch has where a graph computes those that pad it.
        batch: of the first step.
        attention: of the first step.
    """

    def __init__(
        self, state: "MixingModelState", runner: DecodeRunner, rows: BurstRows, batch: InputBatch, attention: Attention
    ) -> None:
        count = len(rows.tokens)
        self.rows = rows
        self._state, self._runner, self._batch, self._attention = state, runner, batch, attention
        self._input_ids, self._positions = batch.input_ids[:count], batch.positions[:count]
        self._lengths = batch.seq_lens[:count]
        self._advance, self._note = (_compiled_advance, _compiled_note) if rows.tokens.is_cuda else (advance, note)

    def begin(self, tokens: Tensor) -> None:
        """Notes what the first step chose, int64 [R], and prepares the second."""
        count = len(tokens)
        rows, lengths = self.rows.first(count), self._lengths[:count]
        note(rows, tokens, lengths, self._state.mixing.ends(tokens, rows.addresses))
        self._move_on()

    def choose_and_advance(self, hidden: Tensor) -> None:
        """Chooses the tokens after a forward, and prepares the next one.

        Args:
            hidden: what the forward returned; float [at least R, d].
        """
        rows, mixing = self.rows, self._state.mixing
        logits = self._state.model.compute_logits(hidden[: len(rows.tokens)])
        lengths = self._lengths.long()
        # Copies: code that is compiled for views is other code, whose last bits may differ from the first step's.
        addresses, live = rows.addresses.clone(), rows.live.clone()
        chosen = mixing.choose(logits, addresses, lengths, live, self._state.head.take())
        self._note(rows, chosen, lengths, mixing.ends(chosen, rows.addresses))
        self._move_on()

    def _move_on(self) -> None:
        self._advance(self.rows, self._input_ids, self._positions, self._lengths)
        self._runner.map_slots(self.rows.states, self._batch)
        if self._attention.mode == CUDAGraphMode.FULL and self._attention.updatable():
            self._attention.update()
        self._state.mixing.before_forward(self.rows.addresses.clone(), self._positions.clone())

    def forward(self, number: int) -> Tensor:
        """Runs the model without a graph, the ``number``-th time after the first; returns hidden states [T, d]."""
        batch, attention, state = self._batch, self._attention, self._state
        longest = (batch.seq_lens_cpu_upper_bound + number).clamp(max=state.max_model_len)  # ended rows stay shorter
        at_this_step = replace(batch, seq_lens_cpu_upper_bound=longest)
        metadata = state.attention_metadata(at_this_step, attention)
        with set_forward_context(
            metadata,
            state.vllm_config,
            num_tokens=batch.num_tokens_after_padding,
            cudagraph_runtime_mode=CUDAGraphMode.NONE,
            slot_mapping=slots_by_layer(attention.slot_mappings, attention.kv_cache_config),
        ):
            hidden: Tensor = state.model(
                input_ids=batch.input_ids, positions=batch.positions, inputs_embeds=None, intermediate_tensors=None
            )
        return hidden
