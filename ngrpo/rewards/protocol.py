"""The protocol of rewards."""

from collections.abc import Sequence
from typing import Protocol

from ngrpo.types.scores import Score


class Reward(Protocol):
    """Scores responses against reference answers.

    One that declares a further parameter ``questions`` also gets the question of each response, as text; likewise
    ``prompts``, ``completions`` and the fields that the data keeps, see `ngrpo.rewards.functions.columns`.
    """

    def __call__(self, responses: Sequence[str], references: Sequence[str]) -> list[Score]:
        """Returns a score a response."""

    def close(self) -> None:
        """Frees the resources of scoring."""
