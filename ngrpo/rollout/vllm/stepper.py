"""The two computations around vLLM's forward: what to feed, and what to choose and record.

Both are plain tensor functions. On CUDA they are compiled, so that a strategy's step, the token draw, the normaliser
and the bookkeeping become a few kernels over the logits; the same functions uncompiled are the reference. Fixed
shapes, no value read back to the host.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration, Step, StepContext
from ngrpo.exploration.decide import decide
from ngrpo.rollout.vllm.session import Session


def feed(session: Session, slots: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Looks up what stands at each scheduled token's position.

    Args:
        session: the records.
        slots: slot of each token, scratch for none; int64 [T].
        positions: absolute position of each token; int64 [T].

    Returns:
        mixed bool [T], ids int32 [T, K], weights float32 [T, K]; prompt tokens are never mixed.
    """
    return _feed(session.prompt_lengths, session.mixed, session.ids, session.weights, slots, positions)


def _feed(
    prompt_lengths: Tensor, mixed: Tensor, ids: Tensor, weights: Tensor, slots: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    place = positions - prompt_lengths[slots]
    generated = (place >= 0) & (place < mixed.shape[1])
    place = place.clamp(0, mixed.shape[1] - 1)
    return mixed[slots, place] & generated, ids[slots, place], weights[slots, place]


def choose(session: Session, logits: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
    """Chooses and records the next token of each row.

    Args:
        session: strategy and records.
        logits: float [R, V], as the model gave them.
        slots: slot of each row; scratch for a row whose prefill is not finished: it is sampled, and forgotten.
        positions: absolute slot of the token being chosen; int64 [R].

    Returns:
        int64 [R].
    """
    place = (positions - session.prompt_lengths[slots]).clamp(0, session.mixed.shape[1] - 1)
    context = StepContext(
        keys=session.keys[slots],
        positions=positions,
        ended=place > session.end_at[slots],
        end_ids=session.end_ids,
        tables=session.tables,
    )
    strategy = session.spec.strategy
    run = _compiled(strategy) if logits.is_cuda else partial(decide, strategy)
    step, log_probs = run(
        logits, session.spec.temperature, context, None if session.explore is None else session.explore[slots]
    )
    session.tokens[slots, place] = step.token.int()
    session.log_probs[slots, place] = log_probs
    session.mixed[slots, place] = step.mixed
    session.ids[slots, place] = step.ids.int()
    session.weights[slots, place] = step.weights
    _note_end(session, slots, place, context.is_end(step.token))
    return step.token


def _note_end(session: Session, slots: Tensor, place: Tensor, is_end: Tensor) -> None:
    """Remembers the first end token; a position chosen anew (after a dropped output) takes back what it said."""
    never = session.mixed.shape[1]
    known = session.end_at[slots]
    known = torch.where(known == place, never, known)
    session.end_at[slots] = torch.where(is_end, torch.minimum(known, place), known)


Decide = Callable[[Tensor, float, StepContext, Tensor], tuple[Step, Tensor]]
_COMPILED: dict[Exploration, Decide] = {}


def _compiled(strategy: Exploration) -> Decide:
    if strategy not in _COMPILED:
        _COMPILED[strategy] = torch.compile(partial(decide, strategy), dynamic=True)
    return _COMPILED[strategy]
