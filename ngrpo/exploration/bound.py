"""A strategy together with what it was prepared with."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.vocabulary import Vocabulary


@dataclass(frozen=True)
class BoundExploration:
    """What an engine needs to run a strategy.

    Attributes:
        strategy: the strategy.
        tables: what its `prepare` returned for the served embedding.
        end_ids: token ids that end the reasoning.
    """

    strategy: Exploration
    tables: Mapping[str, Tensor]
    end_ids: tuple[int, ...]


def bind(strategy: Exploration, embedding: Tensor, vocabulary: Vocabulary) -> BoundExploration:
    """Prepares a strategy for the served input embedding [V, d]."""
    return BoundExploration(strategy, strategy.prepare(embedding, vocabulary), vocabulary.end_ids(strategy.end_token))
