"""What the adapters of both model runners share: the session in force and the buffers it fills."""

from typing import Any

import torch
from torch import Tensor

from ngrpo.rollout.vllm.buffers import MixBuffers
from ngrpo.rollout.vllm.embedding import install
from ngrpo.rollout.vllm.session import Session, SessionSpec
from ngrpo.rollout.vllm.stepper import choose, feed_into

CONFIG_KEY = "ngrpo"
"""Key of our settings in vLLM's ``additional_config`` and in a request's ``extra_args``."""


class MixingCore:
    """One worker's mixing state.

    Args:
        model: the loaded vLLM model; its input embedding is replaced.
        width: largest K of any strategy that will run.
        max_tokens: most tokens in a forward, graph padding included.
        device: the worker's device.
    """

    def __init__(self, model: Any, width: int, max_tokens: int, device: torch.device) -> None:
        self.device = device
        self.width = width
        self.buffers = MixBuffers(max_tokens, max(width, 1), device)
        self.embedding = install(model, self.buffers)
        self.session: Session | None = None

    def begin(self, spec: SessionSpec) -> None:
        """Starts a session; the one before it is forgotten.

        Raises:
            ValueError: the strategy mixes more ids than the engine was started for.
        """
        if spec.strategy.width > self.width:
            raise ValueError(f"the engine was started for mixtures of {self.width} ids, not {spec.strategy.width}")
        self.session = Session(spec, self.device)

    def before_forward(self, slots: Tensor, positions: Tensor) -> None:
        """Fills the buffers for the scheduled tokens; int64 [T] each."""
        if self.session is None or self.session.spec.strategy.width == 0:
            self.buffers.clear()
        else:
            feed_into(self.session, self.buffers, slots, positions)
            self.buffers.in_use = True

    def choose(self, logits: Tensor, slots: Tensor, positions: Tensor, recorded: Tensor) -> Tensor:
        """Chooses the next tokens (see `ngrpo.rollout.vllm.stepper.choose`)."""
        assert self.session is not None
        return choose(self.session, logits, slots, positions, recorded)


def settings_of(vllm_config: Any) -> dict[str, Any] | None:
    """Returns our settings of a vLLM engine, None for an engine that is not ours."""
    additional = vllm_config.additional_config
    return additional.get(CONFIG_KEY) if isinstance(additional, dict) else None


def slot_of(sampling_params: Any) -> int:
    """Returns the slot that a request was given, -1 for none."""
    extra = sampling_params.extra_args or {}
    return int(extra.get(CONFIG_KEY, {}).get("slot", -1))
