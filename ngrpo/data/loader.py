"""The endless, resumable stream of training prompts."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from ngrpo.data.sources import ProblemSource
from ngrpo.data.types import LeftOut, Problem, Prompt, PromptBatch
from ngrpo.errors import SettingError

# A stream has no end, but without a length Lightning fetches one batch ahead, and a checkpoint would then
# hold the position after a batch that was never trained on. Summed over ranks as int64: well below 2**63.
UNBOUNDED = 2**31

# Rows in a row without a usable prompt after which an endless source is given up.
MAX_BARREN_ROWS = 10_000


class PromptStream:
    """Yields this rank's share of one global batch after the other, for ever; Lightning's train dataloader.

    Every rank walks the same rows in the same order and takes its slice of each global batch, so position
    and counts agree on all ranks and mean the same under another number of ranks. Batches are always full: a
    source that ends goes on into its next epoch. The state is that after the last batch handed out, and after what
    was drawn for it besides; in Lightning's loop this is the batch being trained on: take it between two batches.

    Attributes:
        epoch: passes over the source completed.
        position: rows of this epoch walked, unusable ones included.
        iteration: global batches handed out since the run began.
        rows_left_out: distinct rows met that cannot be used, by reason (counted in the first epoch).

    Args:
        source: where the problems come from.
        build: makes the prompt of a problem, or says why not.
        seed: of the order of rows.
        prompts_per_batch: size of the global batch; a multiple of `world_size`.
        rank: this process's number.
        world_size: number of processes.

    Raises:
        SettingError: the batch does not divide by the ranks; while iterating: the source has no usable row.
    """

    def __init__(
        self,
        source: ProblemSource,
        build: Callable[[Problem], Prompt | LeftOut],
        *,
        seed: int,
        prompts_per_batch: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if prompts_per_batch % world_size:
            raise SettingError(
                f"data.prompts_per_batch={prompts_per_batch} cannot be shared by {world_size} processes;"
                f" make it a multiple of {world_size}."
            )
        self.source = source
        self.build = build
        self.seed = seed
        self.prompts_per_batch = prompts_per_batch
        share = prompts_per_batch // world_size
        self._share = slice(rank * share, (rank + 1) * share)
        self.epoch = 0
        self.position = 0
        self.iteration = 0
        self.rows_left_out: Counter[str] = Counter()

    def __len__(self) -> int:
        return UNBOUNDED

    def __iter__(self) -> Iterator[PromptBatch]:
        prompts = self._prompts()

        def draw(count: int) -> list[Prompt]:
            return list(islice(prompts, count))

        while True:
            epoch, iteration = self.epoch, self.iteration
            batch = draw(self.prompts_per_batch)
            self.iteration += 1
            yield PromptBatch(batch[self._share], epoch, iteration, draw)

    def _prompts(self) -> Iterator[Prompt]:
        """Walk the usable rows from the present position on."""
        barren = 0
        while True:
            for row in self.source.epoch_rows(self.seed, self.epoch, self.position):
                self.position += 1
                item = row if isinstance(row, LeftOut) else self.build(row)
                if isinstance(item, Prompt):
                    barren = 0
                    yield replace(item, epoch=self.epoch)
                    continue
                barren += 1
                self._count(item)
                if barren == MAX_BARREN_ROWS:
                    raise self._no_usable_row(barren)
            if barren >= self.position:  # the whole epoch, or an empty source
                raise self._no_usable_row(self.position)
            self.epoch, self.position = self.epoch + 1, 0

    def _count(self, item: LeftOut) -> None:
        if self.epoch == 0:
            self.rows_left_out[item.reason] += 1

    def _no_usable_row(self, rows: int) -> SettingError:
        return no_usable_row("data.path", self.source, rows, self.rows_left_out)

    def state_dict(self) -> dict[str, Any]:
        """Return position, counts and what they refer to; the same on every rank, primitives only."""
        return {
            "identity": self.source.identity,
            "seed": self.seed,
            "epoch": self.epoch,
            "position": self.position,
            "iteration": self.iteration,
            "rows_left_out": dict(self.rows_left_out),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken; call before iterating.

        Raises:
            SettingError: the state is of other data or another seed, so its position means nothing here.
        """
        for setting, saved, present in (
            ("data.path", state["identity"], self.source.identity),
            ("data.seed", state["seed"], self.seed),
        ):
            if saved != present:
                raise SettingError(
                    f"{setting}={present} cannot go on from a checkpoint made with {saved}; set it back,"
                    " or start a new run from the checkpoint's weights."
                )
        self.epoch = state["epoch"]
        self.position = state["position"]
        self.iteration = state["iteration"]
        self.rows_left_out = Counter(state["rows_left_out"])


def no_usable_row(setting: str, source: ProblemSource, rows: int, left_out: Counter[str]) -> SettingError:
    """Return the error for a source of which nothing can be used."""
    reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(left_out.items())) or "it is empty"
    return SettingError(
        f"{setting}={source.identity} has no usable row among {rows} ({reasons});"
        " raise data.max_prompt_tokens, or point data.question_field and data.answer_field at filled fields."
    )
