"""A count-based exploration bonus for rare answers."""

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from ngrpo.distributed.collectives import gathered
from ngrpo.rewards.terms.base import Responses


class CountBonus:
    """``1 / sqrt(n)``, n the number of times that this problem has got this final answer, now included.

    After COPO, the count-based exploration of arXiv 2501.12735 (Bai et al.), whose bonus has the same form. There n
    is a pseudo-count of the pair (prompt, response), estimated by a coin-flipping network; here it is the exact
    number of visits of the pair (problem, answer as written), which needs no network and treats two ways to one
    answer alike. The weight of the term is the paper's coefficient.

    All responses of a batch, those of other ranks too, are counted before any gets its bonus: equal answers of a
    group get equal bonuses, whatever the order or the number of ranks. A response without an answer gets none.
    """

    bounds = (0.0, 1.0)

    def __init__(self) -> None:
        self._visits: Counter[tuple[int, str]] = Counter()

    def __call__(self, responses: Responses) -> Tensor:
        """Counts the answers of all ranks (a collective) and returns this rank's bonuses; float32 [N]."""
        pairs = [
            (problem.key, score.answer) for problem, score in zip(responses.problems, responses.scores, strict=True)
        ]
        stated = [(key, answer) for key, answer in pairs if answer is not None]
        for visited in gathered(stated):
            self._visits.update(visited)
        counts = [0 if answer is None else self._visits[key, answer] for key, answer in pairs]
        return torch.tensor([count**-0.5 if count else 0.0 for count in counts])

    def state_dict(self) -> dict[str, Any]:
        """Holds the counts, in the order of first visits (by iteration, rank, place)."""
        return {"visits": [(key, answer, count) for (key, answer), count in self._visits.items()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the counts."""
        self._visits = Counter({(key, answer): count for key, answer, count in state["visits"]})
