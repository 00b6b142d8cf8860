"""The endless stream of prompts of one source, and the position up to which it has been drawn."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ngrpo.data.exclusion_remedies import no_usable_row
from ngrpo.data.prompt_source import PromptSource
from ngrpo.types.problems import Excluded, Problem, Prompt

# Rows in a row without a prompt to train on after which a stream is given up.
MAX_ROWS_WITHOUT_PROMPT = 10_000


class SourceStream:
    """The prompts of one source, epoch after epoch, for ever.

    Attributes:
        source: where the prompts come from.
        epoch: passes over the source completed.
        position: rows of this epoch passed, excluded ones included.
        drawn: prompts returned since the run began.
        excluded: excluded rows passed, by reason (counted in the first epoch).
    """

    def __init__(self, source: PromptSource, seed: int) -> None:
        self.source = source
        self.epoch = 0
        self.position = 0
        self.drawn = 0
        self.excluded: Counter[str] = Counter()
        self._seed = seed
        self._items: Iterator[Prompt | Excluded] | None = None

    def draw(self, admits: Callable[[Problem, int], bool]) -> Prompt:
        """Return the next prompt whose problem is admitted in its epoch; the others wait for their next one.

        Raises:
            SettingError: there is none in a whole epoch, or none admitted among `MAX_ROWS_WITHOUT_PROMPT` rows (two
                epochs more where the rows are in memory).
        """
        passed: Counter[str] = Counter()
        excluded = 0  # of those, excluded rows of this epoch
        while passed.total() < MAX_ROWS_WITHOUT_PROMPT + 2 * self.source.rows_in_memory:
            item = self._next()
            if item is None:
                if excluded >= self.position:  # the whole epoch, or an empty source
                    break
                self.epoch, self.position, excluded = self.epoch + 1, 0, 0
                continue
            self.position += 1
            if isinstance(item, Excluded):
                passed[item.reason] += 1
                excluded += 1
                if self.epoch == 0:
                    self.excluded[item.reason] += 1
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
        """Return position and counts, primitives only."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "drawn": self.drawn,
            "left_out": dict(self.excluded),  # the key that checkpoints have
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume where `state` was taken."""
        self.show(state)
        self._items = None

    def show(self, state: dict[str, Any]) -> None:
        """Have `state_dict` return `state`; before the next draw it must be the true one again."""
        self.epoch, self.position, self.drawn = state["epoch"], state["position"], state["drawn"]
        self.excluded = Counter(state["left_out"])
