"""The two computations around an engine's forward: filling the input buffers, and choosing and recording tokens.

Both are plain tensor functions. On CUDA they are compiled, so that a strategy's step, the token draw, the normaliser
and the records become a few kernels over the logits; the same functions uncompiled are the reference. Fixed
shapes, no value read back to the host.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import embedding

from ngrpo.exploration.base import Exploration, RowContext, Step, StepContext
from ngrpo.exploration.runtime.compiled import compiled
from ngrpo.exploration.runtime.decide import decide
from ngrpo.exploration.runtime.distributions import distributions_of
from ngrpo.rollout.records.buffers import BufferTensors, MixingBuffers
from ngrpo.rollout.records.session import Session, SessionInputs, SessionRecords
from ngrpo.types.records import Record
from ngrpo.utils.tempered import tempered

Fill = Callable[[SessionRecords, SessionInputs, BufferTensors, Tensor, Tensor, bool], None]
Choice = Callable[[SessionRecords, SessionInputs, float, Tensor, Tensor, Tensor, Tensor | None, Tensor | None], Tensor]


def fill_buffers(
    session: Session, buffers: MixingBuffers, addresses: Tensor, positions: Tensor, beside: bool = False
) -> None:
    """Writes what `lookup` finds into the first T entries of the buffers.

    Args:
        session: the records.
        buffers: read inside the forward.
        addresses: address of each scheduled token's slot, -1 for none; int64 [T].
        positions: absolute position of each token; int64 [T].
        beside: leave the entries of tokens that are not the session's as another session has filled them.
    """
    strategy = session.spec.strategy
    run: Fill = _fill if buffers.tensors.vectors is None else partial(fill_vectors, strategy)
    if addresses.is_cuda:
        run = _compiled_fill if buffers.tensors.vectors is None else compiled(fill_vectors, strategy)
        addresses, positions = pad_to_two(addresses, -1), pad_to_two(positions, 0)
    run(session.records, session.inputs, buffers.tensors, addresses, positions, beside)


def slots_of(inputs: SessionInputs, addresses: Tensor) -> Tensor:
    """Returns the session's slots at ``addresses``, scratch for what is not its own; int64 [T]."""
    scratch = inputs.keys.shape[0] - 1
    slots = addresses - inputs.first_address
    return torch.where((slots >= 0) & (slots < scratch), slots, scratch)


def is_own(inputs: SessionInputs, addresses: Tensor) -> Tensor:
    """Says which addresses are the session's; bool [T]."""
    return slots_of(inputs, addresses) != inputs.keys.shape[0] - 1


def lookup(
    records: SessionRecords, inputs: SessionInputs, addresses: Tensor, positions: Tensor
) -> tuple[Tensor, Record]:
    """Returns what stands at each token's position; prompt tokens are never mixed.

    Returns:
        mixed bool [T], and the record [T, ...].
    """
    slots, index, generated = _response_indices(records, inputs, addresses, positions)
    return records.mixed[slots, index] & generated, records.record.map(lambda channel: channel[slots, index])


def _response_indices(
    records: SessionRecords, inputs: SessionInputs, addresses: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns each token's slot, its index in the response, and whether it is in the response at all."""
    scratch, budget = records.mixed.shape[0] - 1, records.mixed.shape[1]
    slots = slots_of(inputs, addresses)
    index = positions - inputs.prompt_lengths[slots]
    generated = (index >= 0) & (index < budget) & (slots != scratch)
    return slots, index.clamp(0, budget - 1), generated


def _fill(
    records: SessionRecords,
    inputs: SessionInputs,
    buffers: BufferTensors,
    addresses: Tensor,
    positions: Tensor,
    beside: bool,
) -> None:
    mixed, record = lookup(records, inputs, addresses, positions)
    tokens, width = record.ids.shape
    own = is_own(inputs, addresses) if beside else None
    _put(buffers.mixed, mixed, own)
    _put(buffers.ids[:, :width], record.ids, own)
    _put(buffers.weights[:, :width], record.weights, own)
    rest = buffers.weights[:tokens, width:]
    _put(buffers.weights[:, width:], torch.zeros_like(rest), own)


def _put(buffer: Tensor, values: Tensor, own: Tensor | None) -> None:
    """Writes the first T entries of a buffer: all of them, or those where ``own`` (bool [T]) is True."""
    tokens = values.shape[0]
    if own is not None:
        values = torch.where(own if values.dim() == 1 else own[:, None], values, buffer[:tokens])
    buffer[:tokens] = values


_compiled_fill = torch.compile(_fill, dynamic=True)


def fill_vectors(
    strategy: Exploration,
    records: SessionRecords,
    inputs: SessionInputs,
    buffers: BufferTensors,
    addresses: Tensor,
    positions: Tensor,
    beside: bool = False,
) -> None:
    """Writes the vectors that the strategy makes of its record."""
    assert buffers.vectors is not None
    mixed, record = lookup(records, inputs, addresses, positions)
    slots, index, _ = _response_indices(records, inputs, addresses, positions)
    context = RowContext(inputs.keys[slots], positions.long(), inputs.embedding)
    step = Step(records.tokens[slots, index].long(), mixed, *record._replace(ids=record.ids.long()))
    vectors = strategy.inputs(partial(embedding, weight=inputs.embedding), step, context, inputs.parameters)
    own = is_own(inputs, addresses) if beside else None
    _put(buffers.mixed, mixed, own)
    _put(buffers.vectors, vectors.to(buffers.vectors.dtype), own)


def choose(
    session: Session,
    logits: Tensor,
    addresses: Tensor,
    positions: Tensor,
    recorded: Tensor | None = None,
    hidden: Tensor | None = None,
) -> Tensor:
    """Chooses and records the next token of each row.

    Args:
        session: strategy and records.
        logits: float [R, V], as the model gave them.
        addresses: address of each row's slot; what is not the session's is chosen for, and not recorded; int64 [R].
        positions: absolute position of the token being chosen; integer [R].
        recorded: False for a row whose prefill is not finished: it is sampled, and not recorded; bool [R].
        hidden: what entered the head, float [R, d]; only read for a strategy that declares `reads_hidden`.

    Returns:
        int64 [R].
    """
    strategy, rows = session.spec.strategy, len(addresses)
    hidden = hidden if strategy.reads_hidden else None
    run: Choice = partial(choose_and_record, strategy)
    if logits.is_cuda:
        run = compiled(choose_and_record, strategy, *branches_of(session))
        logits, addresses, positions = pad_to_two(logits, 0), pad_to_two(addresses, -1), pad_to_two(positions, 0)
        recorded = None if recorded is None else pad_to_two(recorded, 0)
        hidden = None if hidden is None else pad_to_two(hidden, 0)
    tokens = run(
        session.records, session.inputs, session.spec.temperature, logits, addresses, positions, recorded, hidden
    )
    return tokens[:rows]


def branches_of(session: Session) -> tuple[bool, ...]:
    """Returns which way `choose_and_record` goes for a session (see `compiled`)."""
    spec = session.spec
    return spec.temperature == 1.0, spec.plain_requests, spec.steered, spec.distributions


def pad_to_two(rows: Tensor, fill: int) -> Tensor:
    """Gives a batch of one a second row: compiled code takes sizes from 2, and 1 would be compiled on its own."""
    return rows if len(rows) > 1 else torch.cat((rows, torch.full_like(rows, fill)))


def choose_and_record(
    strategy: Exploration,
    records: SessionRecords,
    inputs: SessionInputs,
    temperature: float,
    logits: Tensor,
    addresses: Tensor,
    positions: Tensor,
    recorded: Tensor | None,
    hidden: Tensor | None = None,
) -> Tensor:
    """The computation of `choose`, as one tensor function that can be compiled whole; writes into ``records``."""
    scratch, budget = records.mixed.shape[0] - 1, records.mixed.shape[1]
    slots = slots_of(inputs, addresses)
    if recorded is not None:
        slots = torch.where(recorded, slots, scratch)
    positions = positions.long()
    index = (positions - inputs.prompt_lengths[slots]).clamp(0, budget - 1)
    context = StepContext(
        keys=inputs.keys[slots],
        positions=positions,
        embedding=inputs.embedding,
        ended=index > records.end_at[slots],
        end_ids=inputs.end_ids,
        tables=inputs.tables,
        state=_previous_state(records, slots, index),
        progress=inputs.progress,
        hidden=hidden,
    )
    explore = None if inputs.explore is None else inputs.explore[slots]
    steering = None if inputs.steering is None else inputs.steering.at(slots, index)
    step, log_probs = decide(strategy, logits, temperature, context, explore, steering)
    records.tokens[slots, index] = step.token.int()
    records.log_probs[slots, index] = log_probs
    records.mixed[slots, index] = step.mixed
    records.record.put((slots, index), step.record)
    if records.state is not None and step.state is not None:
        records.state[slots, index] = step.state
    if records.support is not None and step.support is not None:
        records.support[slots, index] = step.support.int()
    if records.distributions is not None:
        records.distributions.put((slots, index), distributions_of(tempered(logits, temperature), step.support))
    # The first end token; an index that is chosen again (after a dropped output) is no longer counted as one.
    known = records.end_at[slots]
    known = torch.where(known == index, budget, known)
    records.end_at[slots] = torch.where(context.is_end(step.token), torch.minimum(known, index), known)
    return step.token


def _previous_state(records: SessionRecords, slots: Tensor, index: Tensor) -> Tensor:
    """Returns the state at the index before; int32 [R], or [0] if the strategy has no state.

    It is kept by index, so that one that is chosen again (after a dropped output) reads what it read the first time.
    """
    if records.state is None:
        return index.new_zeros(0, dtype=torch.int32)
    return torch.where(index > 0, records.state[slots, (index - 1).clamp(min=0)], 0)
