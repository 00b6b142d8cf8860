"""Adapter of vLLM's V1 model runner (CPU): three methods of the runner's instance are wrapped."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from vllm.v1.outputs import SamplerOutput
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from ngrpo.rollout.vllm.mixing_state import MixingState
from ngrpo.rollout.vllm.settings import settings_of


class RunnerV1Hooks:
    """Wraps ``_model_forward`` and ``_sample`` of a runner whose model is loaded.

    Args:
        runner: vLLM's V1 runner.
    """

    def __init__(self, runner: Any) -> None:
        settings = settings_of(runner.vllm_config)
        assert settings is not None
        self.runner = runner
        self.mixing = MixingState(runner.model, settings, runner.max_num_tokens, runner.device)
        self._addresses: dict[str, int] = {}
        self._forward = runner._model_forward
        self._sample = runner._sample
        runner._model_forward = self.model_forward
        runner._sample = self.sample

    def reset(self) -> None:
        """Zeroes the device state."""
        self.mixing.buffers.reset()

    def _batch_addresses(self) -> Tensor:
        """Returns the addresses of the batch's rows, which vLLM may have reordered since the last step; int64 [R]."""
        runner, known = self.runner, self._addresses
        ids = runner.input_batch.req_ids[: runner.input_batch.num_reqs]
        self._addresses = {
            i: known[i] if i in known else self.mixing.assign(runner.requests[i].sampling_params) for i in ids
        }
        self.mixing.write_assigned()
        return torch.tensor(list(self._addresses.values()))

    def model_forward(self, *args: Any, **kwargs: Any) -> Any:
        """Fills the buffers, then runs vLLM's forward."""
        runner = self.runner
        rows = runner.input_batch.num_reqs
        if not self.mixing.sessions or rows == 0:
            self.mixing.buffers.clear()
        else:
            starts = torch.from_numpy(runner.query_start_loc.np[: rows + 1].astype(np.int64))
            self._rows = self._batch_addresses()
            addresses = torch.repeat_interleave(self._rows, starts.diff())
            self.mixing.before_forward(addresses, kwargs["positions"][: len(addresses)])
            self._next_positions = kwargs["positions"][starts[1:] - 1] + 1
        return self._forward(*args, **kwargs)

    def sample(self, logits: Tensor, spec_decode_metadata: Any) -> SamplerOutput:
        """Lets the sessions choose the tokens."""
        if not self.mixing.sessions:
            return self._sample(logits, spec_decode_metadata)
        unfinished = torch.from_numpy(self.runner.discard_request_mask.np[: len(logits)].copy())
        tokens = self.mixing.choose(logits, self._rows, self._next_positions, ~unfinished)
        return SamplerOutput(sampled_token_ids=tokens.int().view(-1, 1), logprobs_tensors=None)


def install() -> None:
    """Hooks our engines' runners once their model is loaded, before it is compiled. Safe to call again."""
    load_model = CPUModelRunner.load_model
    if getattr(load_model, "ngrpo", False):
        return

    def load_and_hook(runner: Any, *args: Any, **kwargs: Any) -> None:
        load_model(runner, *args, **kwargs)
        if settings_of(runner.vllm_config) is not None:
            runner.ngrpo_hooks = RunnerV1Hooks(runner)

    load_and_hook.ngrpo = True  # type: ignore[attr-defined]
    CPUModelRunner.load_model = load_and_hook
