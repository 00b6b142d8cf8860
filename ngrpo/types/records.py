"""Decisions and records of a strategy: one set of channels in engines, rollouts and trainer."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ngrpo.types.support import NO_ID


class Record(NamedTuple):
    """All that is needed to rebuild and score the input vectors of mixed positions.

    The leading dimensions are those of whatever holds the record; a channel that the strategy does not fill is None.

    Attributes:
        ids: the mixture's token ids; integer [..., K].
        weights: the mixture's weights; float32 [..., K].
        scores: what a density needs to know of each id; float32 [..., K].
        vector: a vector that cannot be rebuilt from ids and weights; the embedding's dtype, [..., d].
        noise: standard deviation of the noise that was added; the noise itself is drawn again from the request key;
            float32 [...].
    """

    ids: Tensor
    weights: Tensor
    scores: Tensor | None = None
    vector: Tensor | None = None
    noise: Tensor | None = None

    def map(self, change: Callable[[Tensor], Tensor]) -> "Record":
        """Applies ``change`` to every channel there is."""
        return Record._make(None if channel is None else change(channel) for channel in self)

    def put(self, at: tuple[Tensor, ...], values: "Record") -> None:
        """Writes ``values`` at the indices ``at``, in place."""
        for channel, value in zip(self, values, strict=True):
            if channel is not None and value is not None:
                channel[at] = value.to(channel.dtype)

    @classmethod
    def cat(cls, records: Sequence["Record"]) -> "Record":
        """Joins records of one strategy along their first dimension.

        Raises:
            ValueError: some have a channel that others lack, so that they are of several strategies.
        """
        channels = dict(zip(cls._fields, zip(*records, strict=True), strict=True))
        for name, parts in channels.items():
            if len({part is None for part in parts}) > 1:
                raise ValueError(f"some records have {name} and others none; join those of one strategy")
        return Record._make(None if parts[0] is None else torch.cat(parts) for parts in channels.values())


class Step(NamedTuple):
    """The decision of a strategy for o_t, for R rows.

    The record belongs to the slot of o_t: it changes the log-probs of o_{t+1} onward, never that of o_t.

    Attributes:
        token: the token id that becomes text; int64 [R].
        mixed: where x_t comes from the record instead of E[token]; bool [R].
        ids: see `Record`; int64 [R, K].
        weights: float32 [R, K].
        scores: float32 [R, K]; of a strategy that is ``scored``.
        vector: [R, d]; of one that is ``dense``.
        noise: float32 [R]; of one that is ``noisy``.
        state: a counter that the row's next step gets back; int32 [R]; of a strategy that is ``stateful``.
        support: the set that the token was drawn from, the ids of each row before its `NO_ID`; none in a row that was
            drawn from the whole vocabulary; int64 [R, C]; of a strategy with a ``support``.
    """

    token: Tensor
    mixed: Tensor
    ids: Tensor
    weights: Tensor
    scores: Tensor | None = None
    vector: Tensor | None = None
    noise: Tensor | None = None
    state: Tensor | None = None
    support: Tensor | None = None

    @property
    def record(self) -> Record:
        """The channels that are kept of mixed positions."""
        return Record(self.ids, self.weights, self.scores, self.vector, self.noise)

    def with_tokens(self, token: Tensor, mixed: Tensor, plain: Tensor) -> "Step":
        """Returns the step with other tokens and mixed rows; the whole softmax gave those of ``plain`` (bool [R]).

        Written out: torch.compile of PyTorch 2.11 fails where a result was made by ``_replace``.
        """
        support = None if self.support is None else self.support.masked_fill(plain[:, None], NO_ID)
        return Step(token, mixed, self.ids, self.weights, self.scores, self.vector, self.noise, self.state, support)

    def rows(self, at: slice | Tensor) -> "Step":
        """Returns some of the rows, by a slice or by their numbers (int64)."""
        return Step._make(None if channel is None else channel[at] for channel in self)

    @classmethod
    def plain(cls, token: Tensor, support: Tensor | None = None) -> "Step":
        """Returns the step of ordinary decoding: x_t = E[token], K = 0."""
        return cls(token, torch.zeros_like(token, dtype=torch.bool), *no_mixture(token), support=support)


def no_mixture(token: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the ids and weights of mixtures of no id, K = 0, for R rows like ``token``."""
    rows = token.shape[0]
    return token.new_zeros(rows, 0), torch.zeros(rows, 0, device=token.device)
