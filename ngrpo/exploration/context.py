"""The context of a decode step: all that a strategy may depend on besides the logits."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ngrpo.exploration.random import gumbel, normal, uniform


@dataclass(frozen=True)
class RowContext:
    """Where R rows stand, and the model that decides or scores them.

    Attributes:
        keys: request keys; int64 [R].
        positions: absolute slot of the token (P + t - 1, 0-based); int64 [R].
        embedding: the model's own input embedding table [V, d]; in engines [0, d] for a strategy that does not
            declare `reads_embedding`.
    """

    keys: Tensor
    positions: Tensor
    embedding: Tensor

    def rows(self, at: slice) -> "RowContext":
        """Returns some of the rows."""
        return RowContext(self.keys[at], self.positions[at], self.embedding)

    def uniform(self, stream: str, index: Tensor | int = 0) -> Tensor:
        """Returns one U(0, 1) draw a row (float32 [R]), or a row and candidate when ``index`` is [R or 1, C]."""
        return uniform(*self._counters(index), stream, index)

    def gumbel(self, stream: str, index: Tensor | int = 0) -> Tensor:
        """Returns standard Gumbel draws, shaped like those of `uniform`."""
        return gumbel(*self._counters(index), stream, index)

    def normal(self, stream: str, index: Tensor | int = 0) -> Tensor:
        """Returns standard normal draws, shaped like those of `uniform`."""
        return normal(*self._counters(index), stream, index)

    def noise(self, width: int) -> Tensor:
        """Returns the standard normal vector of each row, drawn anew wherever it is needed; float32 [R, width]."""
        return self.normal("noise", torch.arange(width, device=self.keys.device)[None, :])

    def _counters(self, index: Tensor | int) -> tuple[Tensor, Tensor]:
        columns = isinstance(index, Tensor) and index.dim() == 2
        return (self.keys[:, None], self.positions[:, None]) if columns else (self.keys, self.positions)


@dataclass(frozen=True)
class StepContext(RowContext):
    """What a step may depend on besides its logits, for R rows.

    Attributes:
        ended: the row has already emitted an end-of-reasoning token; bool [R].
        end_ids: token ids that end the reasoning; int64 [E], may be empty.
        tables: what the strategy's `prepare` returned.
        state: what the row's last step left in `Step.state`, 0 at first; int32 [R], [0] for a strategy that is not
            `stateful`.
        progress: finished training iterations, those before a resume included, when the weights were handed to the
            engine; int64 [], 0 outside of training. Only a step knows it: what replay needs of it goes into the record.
        hidden: the model's last hidden state, after its final norm: what the head made the logits from; the model's
            dtype, [R, d], None for a strategy that does not declare `reads_hidden`. Only a step knows it.
    """

    ended: Tensor
    end_ids: Tensor
    tables: Mapping[str, Tensor]
    state: Tensor
    progress: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.int64), kw_only=True)
    hidden: Tensor | None = field(default=None, kw_only=True)

    def sample(self, logits: Tensor) -> Tensor:
        """Draws one token a row from softmax(logits); logits [R, V] -> int64 [R].

        By the Gumbel-max trick: one pass over the logits, and a token's draw depends on its own id only.
        """
        candidates = torch.arange(logits.shape[-1], device=logits.device)[None, :]
        return (logits + self.gumbel("token", candidates)).argmax(-1)

    def is_end(self, token: Tensor) -> Tensor:
        """Returns where ``token`` (int64 [R]) ends the reasoning; bool [R]."""
        return is_one_of(token, self.end_ids)


def is_one_of(tokens: Tensor, ids: Tensor) -> Tensor:
    """Returns where ``tokens`` (int64 [...]) are among ``ids`` (int64 [E]); bool [...].

    `torch.isin` sorts where the ids are many for the rows, and waits for the device to do so.
    """
    return (tokens[..., None] == ids).any(-1)
