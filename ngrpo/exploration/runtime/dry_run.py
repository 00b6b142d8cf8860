"""The dry run of a strategy when it is bound: a few steps of two rows, in which it must do what its class declares.

An exception of the strategy's own passes as it is, with its own traceback.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.functional import embedding as look_up

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, RowContext, Step, StepContext
from ngrpo.exploration.runtime.global_draws import draws_globally
from ngrpo.exploration.runtime.gradient_check import check_gradients
from ngrpo.exploration.runtime.host_reads import NoHostReads
from ngrpo.exploration.runtime.kept_state import attributes
from ngrpo.exploration.runtime.step_check import Expected, check_result, check_step, refusal
from ngrpo.utils.written_tensors import watch

Result = TypeVar("Result")

_ROWS = 2
_TOLERANCE = 0.02
"""Of what a row gives alone and beside another, relative to its largest number: far above rounding in bfloat16."""

_LATE = 1_000_000
"""Finished iterations of the second step, after the end of every schedule."""

_OPEN, _CLOSED = 2.0**-33, 1.0 - 2.0**-24
"""The smallest and the largest number that `RowContext.uniform` draws."""


@dataclass(frozen=True)
class _Gated(StepContext):
    """A context whose uniform draws are all ``gate``, unless that is None: every gate open, or every gate closed."""

    gate: float | None = None

    def uniform(self, stream: str, index: Tensor | int = 0) -> Tensor:
        """See `RowContext.uniform`."""
        drawn = super().uniform(stream, index)
        return drawn if self.gate is None else torch.full_like(drawn, self.gate)


def check_tables(strategy: Exploration, tables: object) -> None:
    """Refuses what `prepare` returned if it is no dictionary of tensors."""
    named = isinstance(tables, Mapping) and all(isinstance(name, str) for name in tables)
    if not named or not all(isinstance(table, Tensor) for table in tables.values()):  # type: ignore[attr-defined]
        raise refusal(strategy, "prepare returns something else than tensors by name; return a dict[str, Tensor]")


def check_learned(strategy: Exploration, dim: int) -> None:
    """Refuses learned parameters without a learning rate, and values that differ from call to call."""
    initial, rates = strategy.initial_parameters(dim), strategy.learning_rates()
    if initial.keys() != rates.keys():
        raise refusal(
            strategy,
            f"it learns {sorted(initial)} and has learning rates for {sorted(rates)}; give one to each",
        )
    for name, rate in rates.items():
        if not 0.0 <= rate < math.inf:
            raise refusal(strategy, f"the learning rate of {name} is {rate}; choose 0 or more")
    again = strategy.initial_parameters(dim)
    for name, value in initial.items():
        if value.dtype != torch.float32 or not bool(value.isfinite().all()):
            raise refusal(strategy, f"the initial {name} is not finite in float32; make it so")
        if not torch.equal(value, again[name]):
            raise refusal(strategy, f"the initial {name} differs from call to call; draw it from a seeded generator")


def check_steps(
    strategy: Exploration,
    tables: Mapping[str, Tensor],
    end_ids: tuple[int, ...],
    parameters: Mapping[str, Tensor],
    embedding: Tensor,
) -> None:
    """Runs the strategy on two rows: at the start and later, gates as drawn, open and closed, before and after the end.

    Args:
        strategy: what is run.
        tables: what its `prepare` returned.
        end_ids: ids that end the reasoning.
        parameters: values of what it learns.
        embedding: the served table [V, d].

    Raises:
        SettingError: what it returns is not what its class declares, cannot be used, differs from call to call, or
            depends on the other row or the row's place; or it draws from a global generator, writes into what it is
            given, keeps state of its own, or has no gradient.
    """
    run = _DryRun(strategy, parameters, embedding, _logits(embedding), _hidden(embedding))
    state = torch.zeros(_ROWS if strategy.stateful else 0, dtype=torch.int32, device=embedding.device)
    start = _Gated(
        keys=torch.tensor([6_601_533_460_111_998_529, 1_000_003], device=embedding.device),
        positions=torch.tensor([3, 3], device=embedding.device),
        embedding=embedding if strategy.reads_embedding else embedding[:0],
        ended=torch.zeros(_ROWS, dtype=torch.bool, device=embedding.device),
        end_ids=torch.tensor(end_ids, dtype=torch.int64, device=embedding.device),
        tables=tables,
        state=state,
        progress=torch.zeros((), dtype=torch.int64, device=embedding.device),
        hidden=run.hidden if strategy.reads_hidden else None,
    )
    first = run.step(start)
    positions = start.positions + torch.tensor([900, 1], device=embedding.device)
    later = replace(start, positions=positions, progress=start.progress + _LATE, gate=_OPEN)
    second = run.step(_with_state_of(later, first))
    ended = replace(later, ended=~start.ended, gate=_CLOSED)
    run.step(_with_state_of(ended, second))
    run.check_repeated(start, first)
    for context, step in ((start, first), (later, run.step(later))):
        run.check_alone(context, step)
        run.check_swapped(context, step)
    check_schedule(strategy, start.progress)


def check_schedule(strategy: Exploration, progress: Tensor) -> None:
    """Refuses a schedule whose values are not numbers in tensors; they are logged."""
    values = strategy.schedule(progress)
    if not all(isinstance(value, Tensor) and value.numel() == 1 for value in values.values()):
        raise refusal(strategy, "schedule returns something else than a tensor of one number a name; return these")


def _with_state_of(context: _Gated, step: Step) -> _Gated:
    return context if step.state is None else replace(context, state=step.state)


def _logits(embedding: Tensor) -> Tensor:
    """Returns a row that is almost flat and one with all mass on one token, where others are 0; float32 [2, V]."""
    vocabulary = embedding.shape[0]
    made = torch.randn(_ROWS, vocabulary, generator=torch.Generator().manual_seed(0))
    made[1, vocabulary // 2] += 120.0
    return made.to(embedding.device)


def _hidden(embedding: Tensor) -> Tensor:
    """Returns what could be the last hidden state of both rows; the embedding's dtype, [2, d]."""
    made = torch.randn(_ROWS, embedding.shape[-1], generator=torch.Generator().manual_seed(1))
    return made.to(embedding)


@dataclass(frozen=True)
class _DryRun:
    """A strategy and what its steps are made from."""

    strategy: Exploration
    parameters: Mapping[str, Tensor]
    embedding: Tensor
    logits: Tensor
    hidden: Tensor

    def step(self, context: _Gated) -> Step:
        """Makes a step of both rows, scores it and makes its inputs, checking each, and returns it."""
        step = self._made(self.logits, context)
        check_step(self.strategy, step, self.logits, self.embedding)
        self._check_scored(step, context)
        if self.strategy.mixes and bool(step.mixed.any()):
            self._check_inputs(step, context)
        rows = RowContext(context.keys, context.positions, self.embedding)
        check_gradients(self.strategy, _as_recorded(step), self.logits, rows, self.parameters)
        return step

    def check_repeated(self, context: _Gated, step: Step) -> None:
        """Refuses a step that is not a function of its arguments."""
        for name, one, other in _pairs(step, self._made(self.logits, context)):
            if not torch.equal(one, other):
                raise refusal(
                    self.strategy,
                    f"two equal calls of step return different {name}; draw random numbers from its context "
                    "and keep state in Step.state",
                )

    def check_alone(self, context: _Gated, step: Step) -> None:
        """Refuses a row that is another when it is decided alone."""
        for row in range(_ROWS):
            at = slice(row, row + 1)
            alone = self._made(self.logits[at], _rows(context, at))
            for name, one, other in _pairs(step.rows(at), alone):
                if not _close(one, other):
                    raise refusal(
                        self.strategy,
                        f"step returns another {name} for a row alone than for the same row beside another; "
                        "let no row depend on the others",
                    )

    def check_swapped(self, context: _Gated, step: Step) -> None:
        """Refuses a row that is another at another place in the batch."""
        at = torch.tensor([1, 0], device=context.keys.device)
        for name, one, other in _pairs(step.rows(at), self._made(self.logits[at], _rows(context, at))):
            if not _close(one, other):
                raise refusal(
                    self.strategy,
                    f"step returns another {name} for the same row at another place in the batch; let no row depend "
                    "on its number",
                )

    def _made(self, logits: Tensor, context: _Gated) -> Step:
        return self._called("step", context, lambda ctx: self.strategy.step(logits, ctx), logits)

    def _check_scored(self, step: Step, context: _Gated) -> None:
        """Scores as the engine does, and as the trainer does, which has the record of mixed rows only."""

        def scored(by: Step) -> Tensor:
            def call(ctx: _Gated) -> Tensor:
                return self.strategy.log_prob(self.logits, by, _plain(ctx))

            return self._called("log_prob", context, call, self.logits, _channels(by))

        scores, everywhere = scored(step), torch.ones_like(step.mixed)
        check_result(self.strategy, "log_prob", scores, Expected((_ROWS,), torch.float32), everywhere)
        if not _close(scores, scored(_as_recorded(step))):
            raise refusal(
                self.strategy,
                "log_prob depends on what is not recorded; of rows that are not mixed only token and support are kept",
            )

    def _called(
        self,
        method: str,
        context: _Gated,
        call: Callable[[_Gated], Result],
        logits: Tensor,
        given: Mapping[str, Tensor] | None = None,
    ) -> Result:
        """Calls a method, which must write into nothing that it is given and draw from the context alone."""
        made: list[Result] = []
        written = watch({"its logits": logits, **_tensors(context), **(given or {})})
        changed = attributes(self.strategy)
        if draws_globally(lambda: made.append(self._tried(method, context, call)), logits.device):
            raise refusal(
                self.strategy,
                f"{method} draws from a global generator, which no other engine, batch or replay draws alike from; "
                "draw random numbers from its context, such as ctx.uniform",
            )
        if names := written():
            raise refusal(
                self.strategy,
                f"{method} writes into {names[0]}, which others go on with; make a new tensor, as by masked_fill "
                "or torch.where",
            )
        if names := changed():
            raise refusal(
                self.strategy,
                f"{method} changes {names[0]} of its object, which many rows share and no other process sees; keep "
                "state in Step.state, and return from prepare what is made once",
            )
        return made[0]

    def _tried(self, method: str, context: _Gated, call: Callable[[_Gated], Result]) -> Result:
        """Calls a method; says so where it fails for want of what its class does not declare to read."""
        try:
            with torch.no_grad(), NoHostReads(f"exploration={type(self.strategy).__name__}: {method}"):
                return call(context)
        except SettingError:
            raise
        except Exception as error:
            for flag, field, fuller in self._fuller(context):
                if _runs(partial(call, fuller)):
                    raise refusal(
                        self.strategy,
                        f"{method} reads ctx.{field} and {flag}=True is not declared; declare it in the class",
                    ) from error
            raise

    def _fuller(self, context: _Gated) -> Iterator[tuple[str, str, _Gated]]:
        """Yields the contexts that further flags would give, each with its flag and field."""
        if not self.strategy.reads_embedding:
            yield "reads_embedding", "embedding", replace(context, embedding=self.embedding)
        if not self.strategy.stateful:
            yield "stateful", "state", replace(context, state=torch.zeros_like(context.keys, dtype=torch.int32))
        if not self.strategy.reads_hidden:
            yield "reads_hidden", "hidden", replace(context, hidden=self.hidden[: len(context.keys)])

    def _check_inputs(self, step: Step, context: _Gated) -> None:
        recorded, embed = _as_recorded(step), partial(look_up, weight=self.embedding)
        vectors = self._called(
            "inputs",
            replace(context, embedding=self.embedding),
            lambda ctx: self.strategy.inputs(embed, recorded, _plain(ctx), self.parameters),
            self.logits,
            {**_channels(recorded), **{f'parameters["{name}"]': value for name, value in self.parameters.items()}},
        )
        shape = (_ROWS, self.embedding.shape[-1])
        check_result(self.strategy, "inputs", vectors, Expected(shape, self.embedding.dtype), step.mixed)


def _runs(call: Callable[[], object]) -> bool:
    try:
        with torch.no_grad():
            call()
    except Exception:
        return False
    return True


def _plain(context: StepContext) -> RowContext:
    """Returns what the trainer knows of rows."""
    return RowContext(context.keys, context.positions, context.embedding)


def _as_recorded(step: Step) -> Step:
    """Returns what the trainer gets of a step: zeros for rows that were not mixed, and no state."""

    def kept(channel: Tensor) -> Tensor:
        mixed = step.mixed if channel.dim() == 1 else step.mixed[:, None]
        return channel.where(mixed, torch.zeros_like(channel))

    return Step(step.token, step.mixed, *step.record.map(kept), support=step.support)


def _tensors(context: _Gated) -> dict[str, Tensor]:
    """Returns what a strategy gets with a context, by the names under which it gets them."""
    fields = {f"ctx.{name}": value for name, value in vars(context).items() if isinstance(value, Tensor)}
    return {**fields, **{f'ctx.tables["{name}"]': table for name, table in context.tables.items()}}


def _channels(step: Step) -> dict[str, Tensor]:
    """Returns what `log_prob` and `inputs` get of a step, by the names under which they get it."""
    return {f"step.{name}": channel for name, channel in step._asdict().items() if channel is not None}


def _rows(context: _Gated, at: slice | Tensor) -> _Gated:
    kept = replace(context, keys=context.keys[at], positions=context.positions[at], ended=context.ended[at])
    state = context.state[at] if len(context.state) else context.state
    return replace(kept, state=state, hidden=None if context.hidden is None else context.hidden[at])


def _pairs(step: Step, other: Step) -> list[tuple[str, Tensor, Tensor]]:
    both = zip(step._fields, step, other, strict=True)
    return [(name, one, two) for name, one, two in both if one is not None and two is not None]


def _close(one: Tensor, other: Tensor) -> bool:
    """Compares numbers of any dtype up to the tolerance; infinities must be in the same places."""
    if one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return torch.equal(one, other)
    finite = one.isfinite()
    if not torch.equal(finite, other.isfinite()):
        return False
    one, other = (value.float().where(finite, 0.0) for value in (one, other))
    largest = float(one.abs().max()) if one.numel() else 0.0
    return bool(((one - other).abs() <= _TOLERANCE * max(largest, 1e-6)).all())
