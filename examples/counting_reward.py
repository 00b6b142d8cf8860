"""A reward term with a state: an answer is worth less each time it has been given before, in the whole run."""

from collections import Counter
from typing import Any


class Novelty:
    """1 / (1 + times that the last word of a completion has come last before)."""

    bounds = (0.0, 1.0)

    def __init__(self) -> None:
        self.counts = Counter[str]()

    def __call__(self, completions: list[str]) -> list[float]:
        """Counts the last words of all completions of an iteration."""
        words = [(completion.split() or [""])[-1] for completion in completions]
        values = [1 / (1 + self.counts[word]) for word in words]
        self.counts.update(words)
        return values

    def state_dict(self) -> dict[str, Any]:
        """Saved in every checkpoint: text, numbers, lists and dictionaries."""
        return {"counts": dict(self.counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Called when a run is resumed, and when the process of the reward is replaced."""
        self.counts = Counter(state["counts"])
