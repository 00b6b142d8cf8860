"""A strategy bound to a model: with its tables, end tokens and learned parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.runtime.dry_run import check_learned, check_steps, check_tables
from ngrpo.exploration.runtime.kept_state import attributes
from ngrpo.exploration.runtime.step_check import refusal
from ngrpo.exploration.vocabulary import Vocabulary


@dataclass(frozen=True)
class BoundExploration:
    """What an engine needs to run a strategy.

    Attributes:
        strategy: the strategy.
        tables: what its `prepare` returned for the served embedding.
        end_ids: token ids that end the reasoning.
        parameters: current values of what it learns.
        progress: finished training iterations, see `StepContext`; int64 [].
    """

    strategy: Exploration
    tables: Mapping[str, Tensor]
    end_ids: tuple[int, ...]
    parameters: Mapping[str, Tensor] = field(default_factory=dict)
    progress: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.int64))

    def after(self, iterations: int) -> "BoundExploration":
        """Returns the same after so many finished training iterations."""
        return replace(self, progress=torch.full_like(self.progress, iterations))


def bind(
    strategy: Exploration,
    embedding: Tensor,
    vocabulary: Vocabulary,
    parameters: Mapping[str, Tensor] | None = None,
    tables: Mapping[str, Tensor] | None = None,
) -> BoundExploration:
    """Prepares a strategy for the served input embedding, and tries it (`ngrpo.exploration.runtime.dry_run`).

    No training iteration is finished then; `BoundExploration.after` says how many are.

    Args:
        strategy: the strategy.
        embedding: the served table [V, d].
        vocabulary: the tokenizer's side of it.
        parameters: values of what it learns; None for the initial ones.
        tables: what an earlier `prepare` returned, to be used again; None prepares anew.

    Raises:
        SettingError: the strategy does not do what its class declares.
    """
    dim = embedding.shape[-1]
    check_learned(strategy, dim)
    learned = strategy.initial_parameters(dim) if parameters is None else parameters
    changed = attributes(strategy)
    prepared = strategy.prepare(embedding, vocabulary) if tables is None else tables
    if names := changed():
        raise refusal(
            strategy,
            f"prepare keeps {names[0]} on the object, which grows stale and which a resumed run does not have; return "
            "it as a table",
        )
    check_tables(strategy, prepared)
    bound = BoundExploration(
        strategy,
        {name: table.to(embedding.device) for name, table in prepared.items()},
        vocabulary.end_ids(strategy.end_token),
        {name: value.to(embedding.device) for name, value in learned.items()},
        torch.zeros((), dtype=torch.int64, device=embedding.device),
    )
    check_steps(strategy, bound.tables, bound.end_ids, bound.parameters, embedding)
    return bound
