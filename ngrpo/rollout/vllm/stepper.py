"""The two computations around vLLM's forward: what to feed, and what to choose and record.

Both are plain tensor functions. On CUDA they are compiled, so that a strategy's step, the token draw, the normaliser
and the bookkeeping become a few kernels over the logits; the same functions uncompiled are the reference. Fixed
shapes, no value read back to the host.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration, StepContext
from ngrpo.exploration.decide import decide
from ngrpo.rollout.vllm.buffers import BufferTensors, MixBuffers
from ngrpo.rollout.vllm.session import Records, Session, SessionInputs

Fill = Callable[[Records, Tensor, BufferTensors, Tensor, Tensor], None]
Choice = Callable[[Records, SessionInputs, float, Tensor, Tensor, Tensor, Tensor | None], Tensor]


def feed_into(session: Session, buffers: MixBuffers, slots: Tensor, positions: Tensor) -> None:
    """Writes what `look_up` finds into the first T places of the buffers.

    Args:
        session: the records.
        buffers: read inside the forward.
        slots: slot of each scheduled token, -1 or scratch for none; int64 [T].
        positions: absolute position of each token; int64 [T].
    """
    run: Fill = _fill
    if slots.is_cuda:
        run = _compiled_fill
        slots, positions = at_least_two(slots, -1), at_least_two(positions, 0)
    run(session.records, session.inputs.prompt_lengths, buffers.tensors, slots, positions)


def look_up(
    records: Records, prompt_lengths: Tensor, slots: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns what stands at each token's position; prompt tokens are never mixed.

    Returns:
        mixed bool [T], ids int32 [T, K], weights float32 [T, K].
    """
    scratch, budget = records.mixed.shape[0] - 1, records.mixed.shape[1]
    slots = torch.where(slots < 0, scratch, slots)
    place = positions - prompt_lengths[slots]
    generated = (place >= 0) & (place < budget) & (slots != scratch)
    place = place.clamp(0, budget - 1)
    return records.mixed[slots, place] & generated, records.ids[slots, place], records.weights[slots, place]


def _fill(records: Records, prompt_lengths: Tensor, buffers: BufferTensors, slots: Tensor, positions: Tensor) -> None:
    mixed, ids, weights = look_up(records, prompt_lengths, slots, positions)
    tokens, width = ids.shape
    buffers.mixed[:tokens] = mixed
    buffers.ids[:tokens, :width] = ids
    buffers.weights[:tokens, :width] = weights
    buffers.weights[:tokens, width:] = 0


_compiled_fill = torch.compile(_fill, dynamic=True)


def choose(
    session: Session, logits: Tensor, slots: Tensor, positions: Tensor, recorded: Tensor | None = None
) -> Tensor:
    """Chooses and records the next token of each row.

    Args:
        session: strategy and records.
        logits: float [R, V], as the model gave them.
        slots: slot of each row, -1 or scratch for none; int64 [R].
        positions: absolute slot of the token being chosen; integer [R].
        recorded: False for a row whose prefill is not finished: it is sampled, and forgotten; bool [R].

    Returns:
        int64 [R].
    """
    strategy, rows = session.spec.strategy, len(slots)
    run: Choice = partial(choose_and_record, strategy)
    if logits.is_cuda:
        run = compiled_choice(strategy)
        logits, slots, positions = at_least_two(logits, 0), at_least_two(slots, -1), at_least_two(positions, 0)
        recorded = None if recorded is None else at_least_two(recorded, 0)
    tokens = run(session.records, session.inputs, session.spec.temperature, logits, slots, positions, recorded)
    return tokens[:rows]


def at_least_two(rows: Tensor, fill: int) -> Tensor:
    """Gives a batch of one a second row: compiled code takes sizes of 2 and more, and 1 would be compiled apart."""
    return rows if len(rows) > 1 else torch.cat((rows, torch.full_like(rows, fill)))


def choose_and_record(
    strategy: Exploration,
    records: Records,
    inputs: SessionInputs,
    temperature: float,
    logits: Tensor,
    slots: Tensor,
    positions: Tensor,
    recorded: Tensor | None,
) -> Tensor:
    """What `choose` does, as one tensor function that can be compiled whole; writes into ``records``."""
    scratch, budget = records.mixed.shape[0] - 1, records.mixed.shape[1]
    slots = torch.where(slots < 0, scratch, slots)
    if recorded is not None:
        slots = torch.where(recorded, slots, scratch)
    positions = positions.long()
    place = (positions - inputs.prompt_lengths[slots]).clamp(0, budget - 1)
    context = StepContext(
        keys=inputs.keys[slots],
        positions=positions,
        ended=place > records.end_at[slots],
        end_ids=inputs.end_ids,
        tables=inputs.tables,
    )
    explore = None if inputs.explore is None else inputs.explore[slots]
    step, log_probs = decide(strategy, logits, temperature, context, explore)
    records.tokens[slots, place] = step.token.int()
    records.log_probs[slots, place] = log_probs
    records.mixed[slots, place] = step.mixed
    records.ids[slots, place] = step.ids.int()
    records.weights[slots, place] = step.weights
    # The first end token; a position chosen anew (after a dropped output) takes back what it said.
    known = records.end_at[slots]
    known = torch.where(known == place, budget, known)
    records.end_at[slots] = torch.where(context.is_end(step.token), torch.minimum(known, place), known)
    return step.token


_COMPILED: dict[str, Choice] = {}


def compiled_choice(strategy: Exploration) -> Choice:
    """Returns `choose_and_record` compiled for a strategy; strategies with equal settings share it."""
    key = f"{type(strategy).__module__}.{strategy!r}"
    if key not in _COMPILED:
        _COMPILED[key] = torch.compile(partial(choose_and_record, strategy), dynamic=True)
    return _COMPILED[key]
