"""The place in one source up to which its prompts have been drawn."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ngrpo.data.prepared import PreparedSource
from ngrpo.data.reasons import no_usable_row
from ngrpo.types.problems import Excluded, Problem, Prompt

# Rows in a row without a prompt to train on after which a stream is given up.
MAX_BARREN_ROWS = 10_000


class Cursor:
    """Walks one source for ever, epoch after epoch.

    Attributes:
        source: what is walked.
        epoch: passes over the source completed.
        position: rows of this epoch walked, unusable ones included.
        drawn: prompts returned since the run began.
        left_out: rows met that cannot be used, by reason (counted in the first epoch).
    """

    def __init__(self, source: PreparedSource, seed: int) -> None:
        self.source = source
        self.epoch = 0
        self.position = 0
        self.drawn = 0
        self.left_out: Counter[str] = Counter()
        self._seed = seed
        self._items: Iterator[Prompt | Excluded] | None = None

    def draw(self, admits: Callable[[Problem, int], bool]) -> Prompt:
        """Return the next prompt whose problem is admitted in its epoch; the others wait for their next one.

        Raises:
            SettingError: there is none in a whole epoch, or none admitted among `MAX_BARREN_ROWS` rows (two epochs
                more where the rows are in memory).
        """
        passed: Counter[str] = Counter()
        barren = 0  # of those, rows of this epoch that can never be used
        while passed.total() < MAX_BARREN_ROWS + 2 * self.source.rows_in_memory:
            item = self._next()
            if item is None:
                if barren >= self.position:  # the whole epoch, or an empty source
                    break
                self.epoch, self.position, barren = self.epoch + 1, 0, 0
                continue
            self.position += 1
            if isinstance(item, Excluded):
                passed[item.reason] += 1
                barren += 1
                if self.epoch == 0:
                    self.left_out[item.reason] += 1
            elif admits(item.problem, self.epoch):
                self.drawn += 1
                return replace(item, epoch=self.epoch)
            else:
                passed["held_back"] += 1
        raise no_usable_row(self.source.setting, self.source.identity, passed)

    def _next(self) -> Prompt | Excluded | None:
        if self._items is None:
            self._items = self.source.epoch(self._seed, self.epoch, self.position)
        item = next(self._items, None)
        if item is None:
            self._items = None
        return item

    def state_dict(self) -> dict[str, Any]:
        """Return the place and the counts, primitives only."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "drawn": self.drawn,
            "left_out": dict(self.left_out),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume where `state` was taken."""
        self.show(state)
        self._items = None

    def show(self, state: dict[str, Any]) -> None:
        """Have `state_dict` return `state`; before the next draw it must be the true one again."""
        self.epoch, self.position, self.drawn = state["epoch"], state["position"], state["drawn"]
        self.left_out = Counter(state["left_out"])
