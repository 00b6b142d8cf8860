"""The endless, resumable stream of training prompts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ngrpo.data.curriculum import Curriculum, EveryProblem
from ngrpo.data.prompt_source import PromptSource
from ngrpo.data.source_stream import SourceStream
from ngrpo.errors import SettingError
from ngrpo.types.problems import Problem, Prompt, PromptBatch

# A stream has no end, but without a length Lightning fetches one batch ahead, and a checkpoint would then
# hold the position after a batch that was never trained on. Summed over ranks as int64: well below 2**63.
UNBOUNDED = 2**31


class PromptStream:
    """Yields this rank's share of one global batch after the other, for ever; Lightning's train dataloader.

    Every rank walks the same rows in the same order and takes its share of each global batch, so position
    and counts agree on all ranks and mean the same under another number of ranks. Batches are always full: a
    source that ends goes on into its next epoch. The state is that after the last batch handed out, and after what
    was drawn for it besides; in Lightning's loop this is the batch being trained on: take it between two batches.

    One object in the training process and no DataLoader with workers: those fetch ahead, and their places are not
    those of the batches trained on. A prompt is some tenths of a millisecond of work, so nothing waits for it.

    Several sources are mixed by weight: the next prompt is of the source that is furthest behind its share, so
    that none is ever a whole prompt ahead of it, whatever was excluded. The problem of number k in source s of S has
    the key k S + s.

    Attributes:
        iteration: global batches handed out since the run began.
        curriculum: says which problems are trained on when.

    Args:
        sources: where the prompts come from, each with its weight, above 0.
        seed: of the order of rows.
        prompts_per_batch: size of the global batch; a multiple of `world_size`.
        rank: this process's data rank.
        world_size: number of data ranks.
        curriculum: None admits everything.

    Raises:
        SettingError: the batch does not divide by the ranks; while iterating: a source has no usable row.
    """

    def __init__(
        self,
        sources: Sequence[tuple[PromptSource, float]],
        *,
        seed: int,
        prompts_per_batch: int,
        rank: int = 0,
        world_size: int = 1,
        curriculum: Curriculum | None = None,
    ) -> None:
        if prompts_per_batch % world_size:
            raise SettingError(
                f"data.prompts_per_batch={prompts_per_batch} cannot be shared by {world_size} processes;"
                f" make it a multiple of {world_size}."
            )
        self.seed = seed
        self.prompts_per_batch = prompts_per_batch
        self.curriculum = curriculum or EveryProblem()
        self.iteration = 0
        # Every rank cuts its share into equal minibatches: dealt out one by one, the n-th of all ranks together are the
        # prompts of the n-th on any other number of ranks.
        self._share = slice(rank, None, world_size)
        self._streams = [SourceStream(source, seed) for source, _ in sources]
        self._weights = [weight for _, weight in sources]

    @property
    def identity(self) -> str:
        """Names the data: a source alone by its own name, a mixture by those of its parts and their weights."""
        names = [stream.source.identity for stream in self._streams]
        if len(names) == 1:
            return names[0]
        return " + ".join(f"{weight:g} {name}" for weight, name in zip(self._weights, names, strict=True))

    @property
    def epoch(self) -> int:
        """Passes completed over every source."""
        return min(stream.epoch for stream in self._streams)

    @property
    def rows_left_out(self) -> Counter[str]:
        """Rows that cannot be used, by reason: all of those in memory, and those met so far of a stream."""
        counts = (c.excluded if c.source.excluded is None else c.source.excluded for c in self._streams)
        return sum(counts, Counter())

    def __len__(self) -> int:
        return UNBOUNDED

    def __iter__(self) -> Iterator[PromptBatch]:
        ahead: list[tuple[PromptBatch, dict[str, Any]]] = []

        def make() -> PromptBatch:
            epoch, iteration = self.epoch, self.iteration
            # What is drawn besides is of the same iteration.
            draw = partial(self._draw, iteration)
            batch = draw(self.prompts_per_batch)
            self.iteration += 1
            return PromptBatch(batch[self._share], epoch, iteration, draw, self.curriculum.report, peek_next)

        def peek_next() -> PromptBatch:
            if not ahead:
                before = self.state_dict()
                ahead.append((make(), self.state_dict()))
                self._show(before)
            return ahead[0][0]

        while True:
            if ahead:
                batch, after = ahead.pop()
                self._show(after)
                yield batch
            else:
                yield make()

    def _show(self, state: dict[str, Any]) -> None:
        """Has `state_dict` tell a place before or behind the batch that was looked at; the walk itself goes on."""
        self.iteration = state["iteration"]
        for stream, saved in zip(self._streams, state["sources"], strict=True):
            stream.show(saved)

    def _draw(self, iteration: int, count: int) -> list[Prompt]:
        return [self._next(self._furthest_behind(), iteration) for _ in range(count)]

    def _furthest_behind(self) -> int:
        """Return the place of the source that has the next prompt (the first of several)."""
        drawn = [stream.drawn for stream in self._streams]
        scale = (sum(drawn) + 1) / sum(self._weights)
        behind = [weight * scale - own for weight, own in zip(self._weights, drawn, strict=True)]
        return behind.index(max(behind))

    def _next(self, place: int, iteration: int) -> Prompt:
        def named(problem: Problem) -> Problem:
            return replace(problem, key=problem.key * len(self._streams) + place)

        def admits(problem: Problem, epoch: int) -> bool:
            return self.curriculum.admits(named(problem), epoch, iteration, self.seed)

        prompt = self._streams[place].draw(admits)
        return replace(prompt, problem=named(prompt.problem))

    def state_dict(self) -> dict[str, Any]:
        """Return places, counts and what they refer to; the same on every rank, primitives only."""
        return {
            "identity": self.identity,
            "seed": self.seed,
            "iteration": self.iteration,
            "sources": [stream.state_dict() for stream in self._streams],
            "curriculum": self.curriculum.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume where `state` was taken.

        Raises:
            SettingError: the state is of other data or another seed, so its position means nothing here.
        """
        for setting, saved, present in (
            ("data.path", state["identity"], self.identity),
            ("data.seed", state["seed"], self.seed),
        ):
            if saved != present:
                raise SettingError(
                    f"{setting}={present} cannot resume from a checkpoint made with {saved}; set it back,"
                    " or start a new run from the checkpoint's weights."
                )
        self.iteration = state["iteration"]
        for stream, saved in zip(self._streams, state["sources"], strict=True):
            stream.load_state_dict(saved)
        self.curriculum.load_state_dict(state["curriculum"])
