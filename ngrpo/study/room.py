"""The room that problems leave to a method: what the untrained model solves once, in many samples, and never."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ngrpo.study.definition import LevelsConfig
from ngrpo.utils.numbers import fixed


@dataclass(frozen=True)
class Room:
    """The untrained model on a set of problems.

    Attributes:
        samples: answers to each problem.
        mean: Mean@1.
        solved: Pass@samples, the share of the problems with a right answer among them.
    """

    samples: int
    mean: float
    solved: float

    @classmethod
    def of(cls, samples: int, right: Sequence[int]) -> "Room":
        """Returns the room of P problems, with so many right answers to each; [P]."""
        solved = sum(count > 0 for count in right) / len(right)
        return cls(samples, sum(right) / (samples * len(right)), solved)

    @classmethod
    def of_metrics(cls, metrics: Mapping[str, float]) -> "Room | None":
        """Returns what `metrics` made; None of those of earlier studies, which have the Mean@1 alone."""
        passes = [(int(name.removeprefix("pass@")), value) for name, value in metrics.items() if name != "mean@1"]
        return cls(passes[0][0], metrics["mean@1"], passes[0][1]) if passes else None

    def metrics(self) -> dict[str, float]:
        """Returns the figures as metrics."""
        return {"mean@1": self.mean, f"pass@{self.samples}": self.solved}

    def shortfalls(self, rule: LevelsConfig) -> list[str]:
        """Returns what of the rule is not kept, in words; nothing if all is."""
        found = []
        if not rule.low <= self.mean <= rule.high:
            found.append(f"Mean@1 is not from {fixed(rule.low)} to {fixed(rule.high)}")
        if self.solved - self.mean < rule.gain:
            found.append(f"Pass@{self.samples} is not {fixed(rule.gain)} above it")
        if 1 - self.solved < rule.unsolved:
            found.append(f"fewer than {fixed(rule.unsolved)} are unsolved")
        return found

    def sentence(self, rule: LevelsConfig) -> str:
        """Returns the figures, and whether they keep the rule."""
        figures = (
            f"Mean@1 {fixed(self.mean)}, Pass@{self.samples} {fixed(self.solved)}, unsolved {fixed(1 - self.solved)}"
        )
        return f"{figures}; {', '.join(self.shortfalls(rule)) or 'keeps the rule'}"
