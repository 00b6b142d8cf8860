"""Settings of the optimiser steps (``trainer`` in the configuration)."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ngrpo.errors import SettingError
from ngrpo.modeling.policy import HEAD_ROWS
from ngrpo.modeling.precision import PRECISIONS
from ngrpo.training.optim.lr_schedule import unchanged


@dataclass(frozen=True, kw_only=True)
class UpdateSettings:
    """Settings of the optimiser steps.

    Attributes:
        temperature: tau of the rollouts; the log-probs are those at tau.
        microbatch_tokens: most tokens (prompts included) in one forward pass.
        max_grad_norm: gradient norms above are scaled down to it.
        precision: "32-true" computes in the dtype of the parameters; "bf16-mixed" and "16-mixed" compute in bfloat16
            and float16, and keep parameters, gradients and optimiser in theirs (`ngrpo.modeling.precision`). At a
            learning rate of 1e-6 parameters must be float32: bfloat16 ones round most updates away.
        learning_rate: optimiser steps made so far, and used share of the token limit -> factor on the policy's learning
            rate; see `ngrpo.training.optim.lr_schedule.RunSchedule`.
        head_rows: most tokens whose logits over the vocabulary are held at a time.
        offload_reference: keep the reference in host memory outside its forward passes.
        offload_optimizer: keep the optimisers' moments in host memory from the end of an update to the first step of
            the next.
        share_prompts: compute a prompt once for those of its responses that are in one forward pass.
        exact: policy and reference give a token the log-prob that an exact engine gives it (`ngrpo.modeling.exact`).
        gather_once: sharded models gather weights and sum gradients once an optimiser step, not once a microbatch;
            None where there is memory enough, see `ngrpo.modeling.gathering.gathers_once`.

    Raises:
        SettingError: a setting is out of range.
    """

    temperature: float = 1.0
    microbatch_tokens: int = 8192
    max_grad_norm: float = 1.0
    precision: str = "32-true"
    learning_rate: Callable[[int, float], float] = unchanged
    head_rows: int = HEAD_ROWS
    offload_reference: bool = False
    offload_optimizer: bool = False
    gather_once: bool | None = None
    share_prompts: bool = True
    exact: bool = False

    def __post_init__(self) -> None:
        for name in ("microbatch_tokens", "max_grad_norm", "head_rows"):
            if not getattr(self, name) > 0:
                raise SettingError(f"trainer.{name}={getattr(self, name)} must be positive; raise it.")
        if self.precision not in PRECISIONS:
            raise SettingError(
                f"trainer.precision={self.precision} is not known; choose one of {', '.join(PRECISIONS)} (model.dtype "
                "sets the dtype of the parameters)."
            )

    @property
    def mixed_in(self) -> torch.dtype | None:
        """The dtype to compute in, whatever that of the parameters; None computes in theirs."""
        return PRECISIONS[self.precision]
