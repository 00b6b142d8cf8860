"""A strategy that mixes up to a chosen position of each rollout, and samples plainly after it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ngrpo.exploration.base import Embed, Exploration, RowContext, Step, StepContext
from ngrpo.exploration.vocabulary import Vocabulary

KEYS, LAST, TOKEN_KEPT = "mix_until/keys", "mix_until/last", "mix_until/token_kept"

_DECLARED = (
    *("width", "scored", "dense", "noisy", "stateful", "reads_embedding", "reads_hidden", "end_token"),
    *("truncates", "support"),
)
"""What a class declares that this one takes over."""


@dataclass(frozen=True)
class Limits:
    """Where the strategy stops in each of n rollouts.

    Attributes:
        keys: of the requests, all different; int64 [n].
        last: the last position at which a rollout may be mixed; int64 [n].
        token_kept: in whose next position the strategy still chooses the token, which is then fed plainly; bool [n].
    """

    keys: Tensor
    last: Tensor
    token_kept: Tensor


@dataclass(frozen=True)
class MixUntil(Exploration):
    """Another strategy up to a position of its own for each rollout, ordinary sampling after it.

    Draws are functions of key and position, so two such strategies with different limits make the same rollout up to
    the smaller one.

    Attributes:
        inner: the strategy.
        limits: where it stops; a step reads them from the tables, so strategies that differ in nothing else share
            compiled code, which goes by their text.
    """

    inner: Exploration
    limits: Limits = field(repr=False)

    def __post_init__(self) -> None:
        inner = self.inner
        for name in _DECLARED:
            object.__setattr__(self, name, getattr(inner, name))

    def prepare(self, embedding: Tensor, vocabulary: Vocabulary) -> dict[str, Tensor]:
        """Adds the limits, sorted by key, to the inner strategy's tables."""
        keys, order = self.limits.keys.sort()
        own = {KEYS: keys, LAST: self.limits.last[order], TOKEN_KEPT: self.limits.token_kept[order]}
        moved = {name: table.to(embedding.device) for name, table in own.items()}
        return self.inner.prepare(embedding, vocabulary) | moved

    def initial_parameters(self, dim: int) -> dict[str, Tensor]:
        """Those of the inner strategy."""
        return self.inner.initial_parameters(dim)

    def schedule(self, progress: Tensor) -> dict[str, Tensor]:
        """That of the inner strategy."""
        return self.inner.schedule(progress)

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """The step of the inner strategy up to the limit, a plain one after it."""
        step = self.inner.step(logits, ctx)
        last = len(ctx.tables[KEYS]) - 1  # where keys without a limit would lie beyond
        index = torch.searchsorted(ctx.tables[KEYS], ctx.keys).clamp(max=last)
        past = ctx.positions - ctx.tables[LAST][index]
        kept = (past == 1) & ctx.tables[TOKEN_KEPT][index]
        plain = (past > 0) & ~kept
        token = torch.where(plain, ctx.sample(logits), step.token)
        return step.with_tokens(token, step.mixed & (past <= 0), plain)

    def inputs(self, embed: Embed, step: Step, ctx: RowContext, parameters: Mapping[str, Tensor]) -> Tensor:
        """Those of the inner strategy."""
        return self.inner.inputs(embed, step, ctx, parameters)

    def log_prob(self, logits: Tensor, step: Step, ctx: RowContext) -> Tensor:
        """That of the inner strategy."""
        return self.inner.log_prob(logits, step, ctx)
