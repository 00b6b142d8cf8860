"""Objects that run in processes of their own in the tests; line numbers of this file are in their expectations."""

import os
import time
from pathlib import Path

import torch
from torch import Tensor

from ngrpo.rewards.terms.base import Responses
from ngrpo.types.scores import Score, Verdict


class LengthsAndCalls:
    """The length of each response, and the calls so far."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, responses: Responses) -> Tensor:
        lengths = torch.tensor([float(rollout.length) for rollout in responses.rollouts])
        assert [score.status for score in responses.scores]
        assert all(isinstance(text, str) for text in responses.texts)
        self.calls += 1
        return lengths + self.calls - 1


class Raising:
    """Raises on one problem."""

    def __init__(self, key: int | str) -> None:
        self.key = key
        # Found out while it is made.
        if isinstance(key, str):
            raise ValueError("no such problem")

    def __call__(self, responses: Responses) -> Tensor:
        found = [problem.key for problem in responses.problems]
        values = torch.zeros(len(found))
        if self.key in found:
            raise KeyError("not this one")
        return values


class Failing:
    """Returns its process; hangs, holds the interpreter or dies if it is told to fail."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __call__(self, texts: list[str]) -> list[float]:
        if "fail" in texts:
            {"hang": lambda: time.sleep(600), "hold": lambda: 7**10**9, "die": lambda: os._exit(1)}[self.how]()
        return [float(os.getpid())] * len(texts)


class Counting:
    """Its calls, as values and as its state; hangs once, at the chosen call of its process."""

    def __init__(self, hang_at: int | None = None) -> None:
        self.calls = 0
        self.here = 0
        self.hang_at = hang_at

    def __call__(self, responses: Responses) -> Tensor:
        self.here += 1
        if self.here == self.hang_at:
            time.sleep(600)
        self.calls += 1
        return torch.full((len(responses),), float(self.calls))

    def state_dict(self) -> dict[str, int]:
        return {"calls": self.calls}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.calls = state["calls"]


class Scoring:
    """A reward: 1 for equal texts."""

    def __call__(self, texts: list[str], references: list[str]) -> list[Score]:
        if "hang" in texts:
            time.sleep(600)
        pairs = zip(texts, references, strict=True)
        return [Score(float(a == b), a == b, a, Verdict.CORRECT if a == b else Verdict.WRONG) for a, b in pairs]

    def close(self) -> None:
        pass


class ScoringQuestions:
    """A reward: 1 for a response that is the question."""

    def __call__(self, texts: list[str], references: list[str], questions: list[str]) -> list[Score]:
        pairs = zip(texts, questions, strict=True)
        return [Score(float(a == b), a == b, a, Verdict.CORRECT if a == b else Verdict.WRONG) for a, b in pairs]

    def close(self) -> None:
        pass


class HangingAt:
    """A reward that finds everything right; hangs at the chosen call of all its processes, which a file counts."""

    def __init__(self, marker: str, call: int) -> None:
        self.marker = Path(marker)
        self.call = call

    def __call__(self, texts: list[str], references: list[str]) -> list[Score]:
        with self.marker.open("a") as file:
            file.write(".")
        if self.marker.stat().st_size == self.call:
            time.sleep(600)
        return [Score(1.0, True, text, Verdict.CORRECT) for text in texts]

    def close(self) -> None:
        pass


class Unpicklable:
    """Returns, or has in its state, what cannot leave its process."""

    def __init__(self, state: bool = False) -> None:
        self.state = state

    def __call__(self, texts: list[str]) -> object:
        return [0.0] * len(texts) if self.state else (0.0 for _ in texts)

    def state_dict(self) -> dict[str, object]:
        return {"pending": (one for one in "ab")} if self.state else {}

    def load_state_dict(self, state: dict[str, object]) -> None: ...


class StorageBytes:
    def __call__(self, tensor: Tensor) -> list[int]:
        return [tensor.untyped_storage().nbytes()] * len(tensor)


class NotCallable:
    """Has no ``__call__``."""

    def __repr__(self) -> str:
        return "NotCallable()"


class Marking:
    """Adds a line to a file when it is made."""

    def __init__(self, file: str) -> None:
        with Path(file).open("a") as opened:
            opened.write("made\n")

    def __call__(self, texts: list[str]) -> list[float]:
        return [1.0] * len(texts)
