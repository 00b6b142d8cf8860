"""The base of the strategies that mix a token with its semantic neighbours: their table and their gated step."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, Step, StepContext
from ngrpo.exploration.neighbor_table import SIMILARITIES, excluded_rows, neighbor_table
from ngrpo.exploration.vocabulary import Vocabulary


@dataclass(frozen=True, kw_only=True)
class NeighborBase(Exploration):
    """Neighbours in the input embedding, and the gated step that mixes them (see `NeighborMixing`).

    Attributes:
        metric: similarity of embedding rows: cosine | l2 | l1 | dot.
        end_token: text of the token after which nothing is mixed; None mixes to the end.
        refresh_every: rebuild the neighbour table after every so many weight updates; 0 keeps the first one.
        excluded_ids: further ids that must never become neighbours.
    """

    metric: str = "cosine"
    end_token: str | None = "</think>"
    refresh_every: int = 0
    excluded_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "excluded_ids", tuple(self.excluded_ids))  # yaml gives a list
        if self.metric not in SIMILARITIES:
            known = ", ".join(SIMILARITIES)
            raise SettingError(f"exploration.metric={self.metric} is not known; choose one of {known}.")
        if self.refresh_every < 0:
            raise SettingError(f"exploration.refresh_every={self.refresh_every} is negative; 0 means never.")

    def prepare(self, embedding: Tensor, vocabulary: Vocabulary) -> dict[str, Tensor]:
        """Builds the neighbour table [V, width], anchor first."""
        excluded = excluded_rows(embedding, vocabulary, self.excluded_ids)
        return {"neighbors": neighbor_table(embedding, self.width, self.metric, excluded)}

    def mixed_step(
        self,
        logits: Tensor,
        ctx: StepContext,
        rate: Tensor | float,
        k: Tensor | None = None,
        where: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> Step:
        """Mixes the gated rows, draws the others.

        Args:
            logits: float32 [R, V], already divided by the sampling temperature.
            ctx: of the same rows.
            rate: rho; one number, or float32 [R].
            k: ids of the mixture that get weight, the anchor included; int64 [] or [R]. The others are the anchor's
                again, with weight 0. None for all.
            where: says of ids and weights, [R, K] each, which rows may be mixed; bool [R]. None for all.
        """
        anchor = logits.argmax(-1)
        ids = ctx.tables["neighbors"][anchor].long()
        scores = logits.gather(-1, ids)
        if k is not None:
            surplus = torch.arange(self.width, device=ids.device)[None, :] >= k.reshape(-1, 1)
            ids = torch.where(surplus, anchor[:, None], ids)
            scores = scores.masked_fill(surplus, -torch.inf)
        gate = ctx.uniform("gate") < rate
        mixed = gate & ~ctx.ended & ~ctx.is_end(anchor)
        weights = scores.softmax(-1)
        if where is not None:
            mixed = mixed & where(ids, weights)
        return Step(torch.where(mixed, anchor, ctx.sample(logits)), mixed, ids, weights)


def check_ranges(rates: dict[str, float], sizes: dict[str, int], least: int) -> None:
    """Refuses what is no probability, and mixtures of fewer than ``least`` ids; both by the name of the setting."""
    for name, rate in rates.items():
        if not 0.0 <= rate <= 1.0:
            raise SettingError(f"exploration.{name}={rate} is not a probability; choose a value in [0, 1].")
    for name, k in sizes.items():
        if k < least:
            missing = "anchor" if k < 1 else "neighbour"
            raise SettingError(
                f"exploration.{name}={k} leaves no {missing}; choose {name} >= {least} ({name} counts the anchor)."
            )
