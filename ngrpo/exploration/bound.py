"""A strategy together with what it was prepared with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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
        parameters: current values of what it learns.
    """

    strategy: Exploration
    tables: Mapping[str, Tensor]
    end_ids: tuple[int, ...]
    parameters: Mapping[str, Tensor] = field(default_factory=dict)


def bind(
    strategy: Exploration,
    embedding: Tensor,
    vocabulary: Vocabulary,
    parameters: Mapping[str, Tensor] | None = None,
) -> BoundExploration:
    """Prepares a strategy for the served input embedding [V, d]; learned parameters are the initial ones if None."""
    learned = strategy.initial_parameters(embedding.shape[-1]) if parameters is None else parameters
    return BoundExploration(
        strategy,
        strategy.prepare(embedding, vocabulary),
        vocabulary.end_ids(strategy.end_token),
        {name: value.to(embedding.device) for name, value in learned.items()},
    )
