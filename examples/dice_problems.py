"""A data source of your own: an object with a length and rows, like a map-style PyTorch data set."""

from random import Random
from typing import Any


class Dice:
    """Sums of dice, made up by number; each row has a question, an answer and a field for rewards."""

    def __init__(self, rows: int = 100, seed: int = 0) -> None:
        self.rows = rows
        self.seed = seed

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        """The same row at every call; ``data.question_field`` and the like name its fields."""
        random = Random(f"{self.seed}/{index}")
        dice = [random.randint(1, 6) for _ in range(random.randint(2, 4))]
        asked = f"Mia throws {len(dice)} dice: {', '.join(map(str, dice))}. What is their sum?"
        return {"problem": asked, "answer": sum(dice), "level": len(dice)}
