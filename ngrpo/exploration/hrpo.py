"""Hybrid latent reasoning (HRPO): a learned gate between the token and the mean embedding."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear, softplus

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Embed, Exploration, RowContext, Step, StepContext
from ngrpo.types.records import no_mixture

_C = 8.0
"""c of the gate."""


@dataclass(frozen=True)
class HybridReasoning(Exploration):
    """HRPO: x_t = a e + sqrt(1 - a^2 + 1e-8) (i h_t),  e = E[o_t],  h_t = p E / |p|_2,  p = softmax(z_t),  o_t ~ p.

    Elementwise in R^d, with r = sigmoid(W_r e + b_r), i = sigmoid(W_i e + b_i) and a = exp(-8 softplus(-Lambda) r)
    (HRPO, arXiv 2505.18454, and its code; the paper prints softplus without the sign). Lambda starts at -log(u^(-1/8) -
    1), u ~ U[r_min, r_max]: a = u where r = 1. The end token and what follows are fed plainly; the code ends at its
    answer marker "####".

    What is drawn is the token, and its log-prob is the score. h_t is recorded and a constant to the trainer; gate and E
    are current ones, trained with learning rates of their own. The gate is computed in float32: bfloat16 rounds a to 1.
    The code draws at temperature 0.5 and scores at 1; here both are ``rollout.temperature``. As in the code, the
    reference scores the text without latents, so the KL compares a hybrid policy with a plain one.

    Attributes:
        r_min: smallest a at r = 1, at the start.
        r_max: largest.
        gate_lr: learning rate of W_r, b_r, W_i, b_i.
        lambda_lr: of Lambda.
        init_seed: of the initial values.
        end_token: text of the token that ends the hybrid inputs; None never ends them.
    """

    r_min: float = 0.99
    r_max: float = 0.999
    gate_lr: float = 1e-4
    lambda_lr: float = 1e-3
    init_seed: int = 0
    end_token: str | None = "</think>"

    dense = True
    reads_embedding = True
    plain_reference = True

    def __post_init__(self) -> None:
        if not 0.0 < self.r_min <= self.r_max < 1.0:
            raise SettingError(
                f"exploration.r_min={self.r_min} and exploration.r_max={self.r_max} are not in (0, 1) in this order; "
                "the code has 0.99 and 0.999."
            )
        for name in ("gate_lr", "lambda_lr"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise SettingError(
                    f"exploration.{name}={getattr(self, name)} is no learning rate; choose 0 (nothing learned) or more."
                )

    def initial_parameters(self, dim: int) -> dict[str, Tensor]:
        """Linear maps as PyTorch initialises them, and Lambda."""
        generator = torch.Generator().manual_seed(self.init_seed)

        def between(low: float, high: float, *shape: int) -> Tensor:
            return torch.rand(*shape, generator=generator, dtype=torch.float32, device="cpu") * (high - low) + low

        bound = 1.0 / math.sqrt(dim)
        start = between(self.r_min, self.r_max, dim).double()
        return {
            "reset_weight": between(-bound, bound, dim, dim),
            "reset_bias": between(-bound, bound, dim),
            "input_weight": between(-bound, bound, dim, dim),
            "input_bias": between(-bound, bound, dim),
            "lambda": inverse_decay(start).float(),
        }

    def learning_rates(self) -> dict[str, float]:
        """Of each of them."""
        gate = ("reset_weight", "reset_bias", "input_weight", "input_bias")
        return dict.fromkeys(gate, self.gate_lr) | {"lambda": self.lambda_lr}

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Draws the token and records the latent."""
        token = ctx.sample(logits)
        mixed = ~ctx.ended & ~ctx.is_end(token)
        latent = mean_over_norm(logits, ctx.embedding).to(ctx.embedding.dtype)
        return Step(token, mixed, *no_mixture(token), vector=latent)

    def inputs(self, embed: Embed, step: Step, ctx: RowContext, parameters: Mapping[str, Tensor]) -> Tensor:
        """Gates token and latent."""
        assert step.vector is not None
        row = embed(step.token)
        with torch.autocast(row.device.type, enabled=False):
            gated = gate(row.float(), step.vector.float(), parameters)
        return gated.to(row.dtype)


def gate(token: Tensor, latent: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
    """Returns x_t; float32 [R, d] each."""
    reset = torch.sigmoid(linear(token, parameters["reset_weight"], parameters["reset_bias"]))
    admitted = torch.sigmoid(linear(token, parameters["input_weight"], parameters["input_bias"]))
    decay = torch.exp(-_C * softplus(-parameters["lambda"]) * reset)
    # 1e-8 keeps the gradient finite as a nears 1.
    return decay * token + torch.sqrt(1.0 - decay.square() + 1e-8) * (admitted * latent)


def inverse_decay(start: Tensor) -> Tensor:
    """Returns the Lambda at which a = ``start`` where r = 1."""
    return -torch.log(start ** (-1.0 / _C) - 1.0)


def mean_over_norm(logits: Tensor, embedding: Tensor) -> Tensor:
    """Returns p E / |p|_2; [R, V], [V, d] -> float32 [R, d]."""
    probs = logits.softmax(-1)
    with torch.autocast(logits.device.type, enabled=False):
        return probs @ embedding.float() / probs.norm(dim=-1, keepdim=True)
