"""Problems in memory: the records of an object of the user's, and what they have in common with those of files."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from random import Random
from typing import Any, Protocol, runtime_checkable

from ngrpo.data.sources.base import BOXED_INSTRUCTION, Row
from ngrpo.data.sources.fields import Fields
from ngrpo.errors import SettingError


@runtime_checkable
class Records(Protocol):
    """A data source of the user's: an object with a length and rows, such as a map-style PyTorch or hub data set."""

    def __len__(self) -> int:
        """Returns the number of rows."""

    def __getitem__(self, index: int, /) -> Any:
        """Returns a row as a mapping from field names to values; the same at every call."""


class RowsInMemory:
    """Rows that are all at hand; a row's key is its number.

    An epoch is a permutation of the rows drawn from (seed, epoch).

    Attributes:
        unkept: names of the fields that rewards do not get.

    Args:
        identity: names the data.
        records: one mapping a row.
        fields: which fields hold the question and the answer.
        setting: the setting that named the data, for messages.
        shown: its value, for messages.

    Raises:
        SettingError: there is no row, or the fields are missing.
    """

    instruction: str | None = BOXED_INSTRUCTION
    in_memory = True
    endless = False

    def __init__(
        self, identity: str, records: Sequence[Mapping[str, Any]], fields: Fields | None, setting: str, shown: str
    ) -> None:
        fields = fields or Fields()
        if not records:
            raise SettingError(f"{setting}={shown} has no row; give one with problems.")
        available = {name for record in records for name in record}
        fields.check(available, f"{setting}={shown}", setting.rpartition(".")[0])
        self.identity = identity
        self.unkept = fields.unkept(available)
        self._rows = [fields.row(key, record) for key, record in enumerate(records)]

    def rows(self, start: int = 0) -> Iterator[Row]:
        """Yield the rows in their own order."""
        return islice(self._rows, start, None)

    def epoch_rows(self, seed: int, epoch: int, start: int = 0) -> Iterator[Row]:
        """Yield the rows in the order of the epoch's permutation."""
        order = list(range(len(self._rows)))
        Random(f"{seed}/{epoch}").shuffle(order)
        return (self._rows[index] for index in order[start:])


class RecordSource(RowsInMemory):
    """The rows of `Records`, read once.

    An exception of the object's own passes with its traceback.

    Args:
        records: the object.
        fields: which fields hold the question and the answer.
        setting: the setting that named it, for messages.

    Raises:
        SettingError: a row is no mapping, there is none, or the fields are missing.
    """

    def __init__(self, records: Records, fields: Fields | None = None, setting: str = "data.path") -> None:
        name = type(records).__qualname__
        rows = [records[index] for index in range(len(records))]
        for index, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise SettingError(
                    f"{setting}={name} has {type(row).__name__} for row {index}; let it return a dictionary of fields, "
                    "such as {'problem': ..., 'answer': ...}."
                )
        super().__init__(name, rows, fields, setting, name)
        digest = hashlib.sha256()
        for one in self._rows:
            digest.update(repr(one).encode(errors="surrogatepass"))
        self.identity = f"{name}@sha256:{digest.hexdigest()[:16]}"
