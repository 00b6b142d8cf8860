"""Requests to a rollout engine, and the rollouts that it returns."""

from dataclasses import dataclass, replace
from enum import StrEnum

from torch import Tensor

from ngrpo.types.records import Record


class StopReason(StrEnum):
    """Why a rollout ended."""

    STOP = "stop"
    """A stop token was emitted; it is the last response token."""
    LENGTH = "length"
    """``max_new_tokens`` were emitted without a stop token."""


@dataclass(frozen=True)
class Request:
    """One rollout to make.

    Attributes:
        prompt_ids: token ids; [P], P >= 1.
        key: 63-bit key of all randomness of this rollout (`ngrpo.exploration.random.request_key`).
        explore: False samples this rollout plainly, whatever the strategy of the call.
    """

    prompt_ids: tuple[int, ...]
    key: int
    explore: bool = True


@dataclass(frozen=True)
class Sampling:
    """Settings that the requests of one call share.

    Attributes:
        temperature: tau > 0; logits are divided by it before the strategy sees them.
        max_new_tokens: most response tokens, the stop token included.
        stop_ids: token ids that end a rollout.
    """

    temperature: float
    max_new_tokens: int
    stop_ids: tuple[int, ...]


@dataclass(frozen=True)
class Mixture:
    """The record of the mixed positions of one rollout (M of them), in ascending order.

    Attributes:
        positions: absolute slots in prompt + response (P + t - 1 for o_t, 0-based); int64 [M].
        record: what stood there; the ids are int32 [M, K].
    """

    positions: Tensor
    record: Record


@dataclass(frozen=True)
class Rollout:
    """One response. All tensors are on the CPU.

    Attributes:
        key: the request's; noise is drawn again from it.
        prompt_ids: int64 [P].
        response_ids: int64 [T], T >= 1.
        log_probs: the strategy's score of each response token at the sampling temperature; float32 [T].
        mixture: what stood at the mixed positions instead of the token's embedding.
        stop_reason: why it ended.
    """

    key: int
    prompt_ids: Tensor
    response_ids: Tensor
    log_probs: Tensor
    mixture: Mixture
    stop_reason: StopReason

    @property
    def length(self) -> int:
        """T, the number of response tokens."""
        return len(self.response_ids)

    @property
    def tokens(self) -> int:
        """P + T, prompt and response."""
        return len(self.prompt_ids) + self.length

    def without_mixtures(self) -> "Rollout":
        """Returns the same response as if every position had been fed its token's own embedding."""
        none = slice(0, 0)
        mixture = Mixture(self.mixture.positions[none], self.mixture.record.map(lambda channel: channel[none]))
        return replace(self, mixture=mixture)
