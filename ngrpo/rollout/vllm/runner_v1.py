"""Adapter of vLLM's V1 model runner (CPU): its forward and its sampling are wrapped, once its model is loaded."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from vllm.v1.outputs import SamplerOutput

from ngrpo.rollout.vllm.attachment import Attachment
from ngrpo.rollout.vllm.private import RunnerV1


class RunnerV1Hooks:
    """Fills the mixing buffers before each forward and lets the sessions choose the tokens.

    Args:
        worker: the worker whose runner is vLLM's V1 runner.
        attachment: of its model.
    """

    def __init__(self, worker: Any, attachment: Attachment) -> None:
        attachment.runner = self
        self.mixing, self.head = attachment.mixing, attachment.head
        self._addresses: dict[str, int] = {}
        self._runner = RunnerV1(worker)
        self._runner.wrap(self.model_forward, self.sample)

    def reset(self) -> None:
        """Zeroes the device state."""
        self.mixing.buffers.reset()

    def _batch_addresses(self) -> Tensor:
        """Returns the addresses of the batch's rows; int64 [R]."""
        known = self._addresses
        self._addresses = {
            i: known[i] if i in known else self.mixing.assign(params) for i, params in self._runner.rows().items()
        }
        self.mixing.write_assigned()
        return torch.tensor(list(self._addresses.values()))

    def model_forward(self, *args: Any, **kwargs: Any) -> Any:
        """Fills the buffers, then runs vLLM's forward."""
        starts = self._runner.starts()
        if not self.mixing.sessions or len(starts) == 1:
            self.mixing.buffers.clear()
        else:
            self._rows = self._batch_addresses()
            addresses = torch.repeat_interleave(self._rows, starts.diff())
            self.mixing.before_forward(addresses, kwargs["positions"][: len(addresses)])
            self._next_positions = kwargs["positions"][starts[1:] - 1] + 1
        return self._runner.forward(*args, **kwargs)

    def sample(self, logits: Tensor, spec_decode_metadata: Any) -> SamplerOutput:
        """Lets the sessions choose the tokens of their rows, and vLLM's sampler those of others."""
        hidden = self.head.take()
        if not self.mixing.sessions:
            return self._runner.sample(logits, spec_decode_metadata)
        recorded = ~self._runner.unfinished(len(logits))
        chosen = self.mixing.choose(logits, self._rows, self._next_positions, recorded, hidden).int().view(-1, 1)
        others = self._rows[:, None] < 0
        if not bool(others.any()):
            return SamplerOutput(sampled_token_ids=chosen, logprobs_tensors=None)
        theirs: SamplerOutput = self._runner.sample(logits, spec_decode_metadata)  # last: it changes the logits
        return replace(theirs, sampled_token_ids=torch.where(others, theirs.sampled_token_ids, chosen))
