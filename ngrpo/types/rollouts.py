"""Requests to a rollout engine, and the rollouts that it returns."""

from dataclasses import dataclass, replace
from enum import StrEnum

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.types.distributions import Distributions
from ngrpo.types.paths import Path
from ngrpo.types.records import Record
from ngrpo.types.support import Support


class StopReason(StrEnum):
    """Why a rollout ended."""

    STOP = "stop"
    """A stop token was emitted; it is the last response token."""
    LENGTH = "length"
    """``max_new_tokens`` were emitted, by the request or the call, without a stop token."""


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
class Prefix:
    """The first tokens of a response, which are given instead of chosen.

    Attributes:
        ids: token ids; [F], F >= 1.
        mixture: the record of those that were mixed, on the CPU; its positions lie in P to P + F - 1, after the
            prompt's P tokens. None if none was.

    Raises:
        SettingError: there is no token, or the record is not one position after the other.
    """

    ids: tuple[int, ...]
    mixture: Mixture | None = None

    def __post_init__(self) -> None:
        """Refuses what is no prefix."""
        if not self.ids:
            raise SettingError("a prefix has no tokens; give it one or more, or leave it out.")
        if self.mixture is not None:
            _check_mixture(self.mixture)


@dataclass(frozen=True)
class Request:
    """One rollout to make.

    Attributes:
        prompt_ids: token ids; [P], P >= 1.
        key: 63-bit key of all randomness of this rollout (`ngrpo.exploration.random.request_key`).
        explore: False samples this rollout plainly, whatever the strategy of the call.
        prefix: response tokens to go on from; None for none. They count against ``max_new_tokens``.
        expected_tokens: about how many response tokens to expect, those of the prefix included; None if nothing is
            known. What is expected to be long starts first, and no rollout depends on it.
        max_new_tokens: most response tokens of this one, those of the prefix included; None, or more than those of the
            call, for the call's.
        forced_token: the first token that is made, instead of a drawn one; None for none. It is fed plainly, and its
            log-prob is the ordinary one: on the support where it is in it, else of the whole vocabulary.
        likeliest: every token is the likeliest instead of a drawn one, but those of mixed positions, which stay the
            strategy's.

    Raises:
        SettingError: the prefix is mixed at a slot that is none of its own.
    """

    prompt_ids: tuple[int, ...]
    key: int
    explore: bool = True
    prefix: Prefix | None = None
    expected_tokens: int | None = None
    max_new_tokens: int | None = None
    forced_token: int | None = None
    likeliest: bool = False

    def __post_init__(self) -> None:
        """Refuses a prefix of another prompt."""
        if self.prefix is not None and self.prefix.mixture is not None:
            _check_slots(self.prefix.mixture.positions, len(self.prompt_ids), len(self.prefix.ids))

    @property
    def given(self) -> int:
        """F, the number of response tokens that are given."""
        return 0 if self.prefix is None else len(self.prefix.ids)

    @property
    def steered(self) -> bool:
        """Whether some of its tokens are asked for instead of drawn."""
        return self.likeliest or self.forced_token is not None

    def limit(self, budget: int) -> int:
        """Returns the most response tokens in a call that allows ``budget``, those of the prefix included."""
        return budget if self.max_new_tokens is None else min(self.max_new_tokens, budget)


@dataclass(frozen=True)
class Sampling:
    """Settings that the requests of one call share.

    Attributes:
        temperature: tau > 0; logits are divided by it before the strategy sees them.
        max_new_tokens: most response tokens, the stop token included.
        stop_ids: token ids that end a rollout.
        distributions: record what the tokens were drawn from (`Rollout.distributions`), which costs some passes over
            the logits.
    """

    temperature: float
    max_new_tokens: int
    stop_ids: tuple[int, ...]
    distributions: bool = False


@dataclass(frozen=True)
class Rollout:
    """One response. All tensors are on the CPU.

    Attributes:
        key: the request's; noise is drawn again from it.
        prompt_ids: int64 [P].
        response_ids: int64 [T], T >= 1.
        log_probs: the strategy's score of each response token at the sampling temperature, on the token's support where
            it has one; float32 [T].
        mixture: what stood at the mixed positions instead of the token's embedding.
        stop_reason: why it ended.
        prefix_length: F, the first response tokens that were given (`Request.prefix`) and not chosen. They are context:
            their log-probs are 0 and were not computed, and nothing is trained on them.
        path: the nodes of a tree that its generated tokens make up (`ngrpo.rollout.scheduling`); None for a rollout
            that has no generated tokens in common with others.
        support: the sets that truncated sampling drew the T tokens from; None where nothing was truncated.
        distributions: what is recorded of the distributions of the T tokens; [T, ...]. None where it was not asked for.
    """

    key: int
    prompt_ids: Tensor
    response_ids: Tensor
    log_probs: Tensor
    mixture: Mixture
    stop_reason: StopReason
    prefix_length: int = 0
    path: Path | None = None
    support: Support | None = None
    distributions: Distributions | None = None

    @property
    def length(self) -> int:
        """T, the number of response tokens."""
        return len(self.response_ids)

    @property
    def generated(self) -> int:
        """T - F, the number of response tokens that were chosen, not given; log-probs are scored for these."""
        return self.length - self.prefix_length

    @property
    def generated_log_probs(self) -> Tensor:
        """The log-probs of the tokens that were chosen; float32 [T - F]."""
        return self.log_probs[self.prefix_length :]

    @property
    def tokens(self) -> int:
        """P + T, prompt and response."""
        return len(self.prompt_ids) + self.length

    def cut(self, length: int) -> Prefix:
        """Returns the first ``length`` response tokens with their record, for requests of the same prompt.

        With the rollout's own key a request goes on exactly as the rollout does. With another, a strategy's noise at
        the mixed positions is drawn anew from that.

        Raises:
            SettingError: the response is shorter.
        """
        if not 0 < length <= self.length:
            raise SettingError(
                f"a prefix of {length} tokens cannot be cut out of a response of {self.length}; choose 1 to "
                f"{self.length}."
            )
        count = int((self.mixture.positions < len(self.prompt_ids) + length).sum())
        record = self.mixture.record.map(lambda channel: channel[:count])
        return Prefix(tuple(self.response_ids[:length].tolist()), Mixture(self.mixture.positions[:count], record))

    def without_mixtures(self) -> "Rollout":
        """Returns the same response as if every position had been fed its token's own embedding."""
        return self._with_mixtures_from(self.tokens)

    def without_given_mixtures(self) -> "Rollout":
        """Returns the same response with the record of the positions that were generated; those of a prefix go."""
        return self._with_mixtures_from(len(self.prompt_ids) + self.prefix_length)

    def _with_mixtures_from(self, position: int) -> "Rollout":
        first = int((self.mixture.positions < position).sum())
        record = self.mixture.record.map(lambda channel: channel[first:])
        return replace(self, mixture=Mixture(self.mixture.positions[first:], record))


def _check_mixture(mixture: Mixture) -> None:
    positions = mixture.positions
    if positions.dim() != 1 or positions.dtype != torch.int64:
        raise SettingError(
            f"the mixture of a prefix has positions of shape {list(positions.shape)} and dtype {positions.dtype}; "
            "give it int64 [M]."
        )
    if not bool((positions.diff() > 0).all()):
        raise SettingError("the mixture of a prefix has positions that do not ascend; sort them, with their record.")
    lengths = sorted({len(channel) for channel in mixture.record if channel is not None})
    if lengths != [len(positions)]:
        raise SettingError(
            f"the mixture of a prefix has {len(positions)} positions and a record of {lengths} of them; cut both alike."
        )


def _check_slots(positions: Tensor, prompt: int, given: int) -> None:
    outside = positions[(positions < prompt) | (positions >= prompt + given)]
    if len(outside):
        raise SettingError(
            f"a prefix is mixed at position {int(outside[0])}, outside of its own {prompt} to {prompt + given - 1}; "
            "count positions from the prompt's first token, and cut the record where its tokens are cut."
        )
