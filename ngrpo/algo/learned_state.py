"""The state of a part of an algorithm: what it has learned from the run so far."""

from typing import Any


class LearnedState:
    """A part of an algorithm that may learn, and is in every checkpoint; one that learns writes both methods itself."""

    def state_dict(self) -> dict[str, Any]:
        """Holds what was learned, the same on every rank: numbers, text, tensors, lists and dictionaries."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores it."""
        if state:
            raise ValueError(f"{type(self).__name__} learns nothing, and {sorted(state)} were stored of it")
