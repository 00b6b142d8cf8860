"""The prompts of a source: its rows, filtered and built into prompts, or the reason why a row has none."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

from ngrpo.data.exclusion_remedies import no_usable_row
from ngrpo.data.row_filter import RowFilter
from ngrpo.data.sources import ProblemSource, Row
from ngrpo.types.problems import Excluded, Problem, Prompt


class PromptSource:
    """Yields a prompt, or the reason why there is none, for each row of a source.

    Rows in memory are read once, here: their prompts are kept as token ids (four bytes a token). Of problems
    that occur twice the first row stays. Rows that are streamed are made into prompts as they come by; then the row
    that an epoch meets first stays, and going on within an epoch means reading its earlier rows again.

    Attributes:
        source: where the problems come from.
        rows_in_memory: their number; 0 for a stream.
        survey: rows left out by reason, counted over all rows; None for a stream.
        control_text: prompts made so far whose question holds the text of control tokens.

    Args:
        source: see there.
        build: makes the prompt of a problem, or says why not.
        row_filter: excludes problems for their content.
        seen: fingerprints of problems that other sources of a mixture have; those of a source in memory are added.
        setting: the setting that named the source, for messages.

    Raises:
        SettingError: no row in memory can be used.
    """

    def __init__(
        self,
        source: ProblemSource,
        build: Callable[[Problem], Prompt | Excluded],
        row_filter: RowFilter | None = None,
        seen: set[int] | None = None,
        setting: str = "data.path",
    ) -> None:
        self.source = source
        self.setting = setting
        self._build = build
        self._filter = row_filter or RowFilter()
        self._seen = set() if seen is None else seen
        self._known: dict[int, array[int] | Excluded] = {}
        self.rows_in_memory = 0
        self.control_text = 0
        self.excluded = self._read_all() if source.in_memory else None

    @property
    def identity(self) -> str:
        """Names the data."""
        return self.source.identity

    def items(self) -> Iterator[tuple[Row, Prompt | Excluded]]:
        """Yield each row of the source, in its own order, and what becomes of it."""
        if self.excluded is not None:
            return ((row, self._recall(row)) for row in self.source.rows())
        seen = set(self._seen)
        return ((row, self._item(self._filter(row, seen))) for row in self.source.rows())

    def epoch(self, seed: int, epoch: int, start: int = 0) -> Iterator[Prompt | Excluded]:
        """Yield what becomes of the rows in the training order of one epoch, from its `start`-th on."""
        if self.excluded is not None:
            return map(self._recall, self.source.epoch_rows(seed, epoch, start))
        if self._filter.distinct:
            seen = set(self._seen)
            rows = (self._filter(row, seen) for row in self.source.epoch_rows(seed, epoch))
            return map(self._item, islice(rows, start, None))
        return (self._item(self._filter(row, set())) for row in self.source.epoch_rows(seed, epoch, start))

    def _read_all(self) -> Counter[str]:
        excluded: Counter[str] = Counter()
        for row in self.source.rows():
            self.rows_in_memory += 1
            item = self._item(self._filter(row, self._seen))
            if isinstance(item, Excluded):
                excluded[item.reason] += 1
            if isinstance(row, Problem):
                self._known[row.key] = item if isinstance(item, Excluded) else array("i", item.ids)
        if excluded.total() == self.rows_in_memory:
            raise no_usable_row(self.setting, self.identity, excluded)
        return excluded

    def _item(self, row: Row) -> Prompt | Excluded:
        item = row if isinstance(row, Excluded) else self._build(row)
        self.control_text += isinstance(item, Prompt) and item.control_text
        return item

    def _recall(self, row: Row) -> Prompt | Excluded:
        if isinstance(row, Excluded):
            return row
        known = self._known[row.key]
        return known if isinstance(known, Excluded) else Prompt(row, tuple(known))
