"""Problems streamed from the Hugging Face hub."""

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Any, TypeVar

from ngrpo.data.sources.base import BOXED_INSTRUCTION, Row
from ngrpo.data.sources.fields import Fields
from ngrpo.data.sources.files import NARROW_FLOATS
from ngrpo.errors import SettingError, first_line
from ngrpo.utils.given_values import as_written
from ngrpo.utils.hub_access import offline_if_unreachable

# Rows that are in memory at a time for shuffling: a quarter of the DeepScaleR training set, some megabytes.
SHUFFLE_BUFFER = 10_000

T = TypeVar("T")


def shuffle_buffered(items: Iterator[T], random: Random, size: int) -> Iterator[T]:
    """Yield every item once, each drawn from a buffer of the next `size` ones."""
    buffer = list(islice(items, size))
    for item in items:
        slot = random.randrange(size)
        yield buffer[slot]
        buffer[slot] = item
    random.shuffle(buffer)
    yield from buffer


class HubSource:
    """The rows of a hub data set, streamed; a row's key is its number in the stream.

    An epoch is a buffered shuffle drawn from (seed, epoch): rows move by roughly `SHUFFLE_BUFFER` places.
    Seeking streams the rows before the place again.

    Args:
        name: ``org/name``.
        configuration: the data set's own name of a part (a subject, a language); None where it has one only.
        split: the data set's own name of the split.
        fields: which fields hold the question and the answer.
        setting: the setting that named the data set, for messages.

    Raises:
        SettingError: the data set cannot be opened, or lacks the fields.
    """

    instruction: str | None = BOXED_INSTRUCTION
    in_memory = False
    endless = False

    def __init__(
        self,
        name: str,
        configuration: str | None = None,
        split: str = "train",
        fields: Fields | None = None,
        setting: str = "data.path",
    ) -> None:
        offline_if_unreachable()
        import datasets

        shown = f"{name}:{configuration}@{split}" if configuration else f"{name}@{split}"
        self.identity = f"hub:{shown}"
        self._fields = fields or Fields()
        try:
            self._records = datasets.load_dataset(name, configuration, split=split, streaming=True)
            first: dict[str, Any] = next(iter(self._records), {})
        except (OSError, ValueError, RuntimeError, LookupError) as error:
            raise SettingError(
                f"{setting}={shown!r} cannot be opened on the Hugging Face hub ({first_line(error)}); check name,"
                " configuration and split ('org/name:configuration@split'), the network and the access token, or give a"
                " local file."
            ) from error
        features = getattr(self._records, "features", None) or {}
        kinds = {name: NARROW_FLOATS.get(getattr(feature, "dtype", "")) for name, feature in features.items()}
        self._narrow = {name: kind for name, kind in kinds.items() if kind is not None}
        self.unkept = self._fields.unkept(first)
        self._fields.check(first.keys(), f"{setting}={shown!r}", setting.rpartition(".")[0])

    def rows(self, start: int = 0) -> Iterator[Row]:
        """Yield the rows as streamed."""
        for key, record in enumerate(self._records.skip(start), start):
            written = {name: as_written(kind(record[name])) for name, kind in self._narrow.items() if record.get(name)}
            yield self._fields.row(key, {**record, **written})

    def epoch_rows(self, seed: int, epoch: int, start: int = 0) -> Iterator[Row]:
        """Yield the rows through the epoch's shuffle buffer."""
        shuffled = shuffle_buffered(self.rows(), Random(f"{seed}/{epoch}"), SHUFFLE_BUFFER)
        return islice(shuffled, start, None)
