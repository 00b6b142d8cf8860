"""A bonus of your own: the first time that a problem gets an answer in the run is worth something."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ngrpo.algo.outcome_bonus import Answer, Gather, OutcomeBonus, normal


@dataclass
class FirstAnswers(OutcomeBonus):
    """``coef`` for a response whose answer its problem has not got before, 0 for the others."""

    coef: float = 0.1
    seen: set[Answer] = field(default_factory=set, init=False)

    def __call__(self, keys: Sequence[int], answers: Sequence[str | None], gather: Gather) -> Tensor:
        """Returns this rank's bonuses; what other ranks found counts from the next batch on."""
        pairs = [None if answer is None else (key, normal(answer)) for key, answer in zip(keys, answers, strict=True)]
        new = torch.tensor([pair is not None and pair not in self.seen for pair in pairs])
        for found in gather([pair for pair in pairs if pair is not None]):
            self.seen.update(found)
        return self.coef * new.float()

    def state_dict(self) -> dict[str, Any]:
        """Saved in every checkpoint: text, numbers, lists and dictionaries."""
        return {"seen": sorted(self.seen)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Called when a run is resumed."""
        self.seen = {(key, answer) for key, answer in state["seen"]}
