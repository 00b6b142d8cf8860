"""The exploration contract: how one decode step turns logits into a token and the next input embedding.

    x_t = sum_{j<K} w_j E[id_j]   at mixed positions,   x_t = E[o_t]   elsewhere.

A strategy is a frozen dataclass deriving from `Exploration`. It writes fixed-shape tensor operations over the
rows of a batch: no loop over rows, no value read back to the host. To add one, write the class in any file and
point ``exploration._target_`` at it; engines, replay and trainer work from the `Step` that it returns.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ngrpo.exploration.random import gumbel, uniform
from ngrpo.exploration.vocabulary import Vocabulary


class Step(NamedTuple):
    """What a strategy decided for o_t, for R rows.

    The record belongs to the slot of o_t: it changes the log-probs of o_{t+1} onward, never that of o_t.

    Attributes:
        token: the token id that becomes text; int64 [R].
        mixed: where x_t is the mixture instead of E[token]; bool [R].
        ids: the mixture's token ids; int64 [R, K].
        weights: the mixture's weights; float32 [R, K].
    """

    token: Tensor
    mixed: Tensor
    ids: Tensor
    weights: Tensor

    @classmethod
    def plain(cls, token: Tensor) -> "Step":
        """Returns the step of ordinary decoding: x_t = E[token], K = 0."""
        rows = token.shape[0]
        return cls(
            token=token,
            mixed=torch.zeros(rows, dtype=torch.bool, device=token.device),
            ids=token.new_zeros(rows, 0),
            weights=torch.zeros(rows, 0, device=token.device),
        )


@dataclass(frozen=True)
class StepContext:
    """What a step may depend on besides its logits, for R rows.

    Attributes:
        keys: request keys; int64 [R].
        positions: absolute slot of the token being chosen (P + t - 1, 0-based); int64 [R].
        ended: the row has already emitted an end-of-reasoning token; bool [R].
        end_ids: token ids that end the reasoning; int64 [E], may be empty.
        tables: what the strategy's `prepare` returned.
    """

    keys: Tensor
    positions: Tensor
    ended: Tensor
    end_ids: Tensor
    tables: Mapping[str, Tensor]

    def uniform(self, stream: str, index: Tensor | int = 0) -> Tensor:
        """Returns one U[0, 1) draw a row (float32 [R]), or a row and candidate when ``index`` is [R or 1, C]."""
        return uniform(*self._counters(index), stream, index)

    def gumbel(self, stream: str, index: Tensor | int = 0) -> Tensor:
        """Returns standard Gumbel draws, shaped like those of `uniform`."""
        return gumbel(*self._counters(index), stream, index)

    def _counters(self, index: Tensor | int) -> tuple[Tensor, Tensor]:
        columns = isinstance(index, Tensor) and index.dim() == 2
        return (self.keys[:, None], self.positions[:, None]) if columns else (self.keys, self.positions)

    def sample(self, logits: Tensor) -> Tensor:
        """Draws one token a row from softmax(logits); logits [R, V] -> int64 [R].

        By the Gumbel-max trick: one pass over the logits, and a token's draw depends on its own id only.
        """
        candidates = torch.arange(logits.shape[-1], device=logits.device)[None, :]
        return (logits + self.gumbel("token", candidates)).argmax(-1)

    def is_end(self, token: Tensor) -> Tensor:
        """Returns where ``token`` (int64 [R]) ends the reasoning; bool [R]."""
        return torch.isin(token, self.end_ids)


class Exploration(ABC):
    """Base of all strategies.

    Attributes:
        width: K, the number of ids in a mixture; 0 for a strategy that always feeds plain tokens.
        end_token: text of the token that ends the reasoning; ignored by tokenizers that have no such token.
        refresh_every: rebuild the tables after every so many weight updates; 0 keeps the first ones.
        truncates: tokens are drawn from a truncated support, which the trainer's full softmax does not score.
    """

    width: int = 0
    end_token: str | None = None
    refresh_every: int = 0
    truncates: bool = False

    def prepare(self, embedding: Tensor, vocabulary: Vocabulary) -> dict[str, Tensor]:
        """Returns the tables that `step` needs, built from the served input embedding [V, d]."""
        return {}

    @abstractmethod
    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        """Chooses the token and the next input embedding.

        Args:
            logits: float32 [R, V], already divided by the sampling temperature.
            ctx: keys, positions and tables of the same rows.
        """

    def log_prob(self, logits: Tensor, step: Step) -> Tensor:
        """Scores a step; engine and trainer both call this. Default: the token's log-prob.

        Args:
            logits: float32 [R, V], already divided by the sampling temperature.
            step: what was decided from these logits.

        Returns:
            float32 [R].
        """
        return logits.log_softmax(-1).gather(-1, step.token[:, None])[:, 0]
