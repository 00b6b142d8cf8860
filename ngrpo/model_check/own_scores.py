"""Scores of rollouts from the model's own logits: transformers' forward and attention, one padded batch, no packing.

The slow and obvious way, which shares with the trainer the weights, and the strategy's definitions of an input vector
and of a score, and nothing else: not the attention, the packing, the replay, the head, the compiler or the dropout.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from ngrpo.exploration.base import Exploration, RowContext
from ngrpo.modeling.attention import IMPLEMENTATION
from ngrpo.modeling.gathering import reshard
from ngrpo.modeling.policy import ScoringModel
from ngrpo.types.records import Record, Step
from ngrpo.types.rollouts import Rollout
from ngrpo.utils.tempered import tempered

Result = TypeVar("Result")

_OWN_ATTENTION = "eager"
"""Written out in each model's own file, soft caps and all; every model has it."""


@dataclass(frozen=True)
class OwnRows:
    """The rows of a model's own logits that score the N generated tokens of a rollout, and what was recorded there.

    Attributes:
        rollout: the rollout.
        scaled: the logits over the temperature; float32 [N, V].
        recorded: what was decided; N rows.
        context: where the rows stand, and the whole embedding table.
        hidden: what the head made the logits from; [N, d].
    """

    rollout: Rollout
    scaled: Tensor
    recorded: Step
    context: RowContext
    hidden: Tensor


def own_scores(
    model: ScoringModel, rollouts: Sequence[Rollout], temperature: float, exploration: Exploration, together: bool
) -> Tensor:
    """Scores rollouts with a model's own forward in eval mode (a collective when sharded); float32 [N] on the CPU.

    N is the number of generated tokens, which are scored in their order.

    Args:
        model: whose language model is run as transformers made it.
        rollouts: at least one.
        temperature: tau of the scores.
        exploration: made the rollouts.
        together: in one padded batch; else one by one.
    """

    def score(rows: OwnRows) -> Tensor:
        return exploration.log_prob(rows.scaled, rows.recorded, rows.context)

    size = len(rollouts) if together else 1
    return torch.cat(from_own_rows(model, rollouts, temperature, exploration, size, score)).cpu()


@torch.no_grad()
def from_own_rows(
    model: ScoringModel,
    rollouts: Sequence[Rollout],
    temperature: float,
    exploration: Exploration,
    size: int,
    use: Callable[[OwnRows], Result],
) -> list[Result]:
    """Calls ``use`` with each rollout's rows and returns what it returned (a collective when sharded).

    Args:
        model: whose language model is run as transformers made it.
        rollouts: at least one.
        temperature: tau.
        exploration: made the rollouts.
        size: rollouts in a padded batch.
        use: called in the order of the rollouts; its rows are gone after it.
    """
    made: list[Result] = []
    with _as_made(model.lm):
        for start in range(0, len(rollouts), size):
            batch = rollouts[start : start + size]
            rows = partial(_rows, batch, temperature, exploration)
            made += model.run(partial(_used, rows, use))
    reshard(model)
    return made


@contextmanager
def _as_made(lm: PreTrainedModel) -> Iterator[None]:
    """Runs a language model with its own attention, uncompiled and in eval mode; each module is put back as it was."""
    training = [module for module in lm.modules() if module.training]
    lm.eval()
    lm.set_attn_implementation(_OWN_ATTENTION)
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        lm.set_attn_implementation(IMPLEMENTATION)
        for module in training:
            module.training = True


def _used(
    rows: Callable[[ScoringModel], Iterator[OwnRows]], use: Callable[[OwnRows], Result], model: ScoringModel
) -> list[Result]:
    return [use(one) for one in rows(model)]


def _rows(
    rollouts: Sequence[Rollout], temperature: float, exploration: Exploration, model: ScoringModel
) -> Iterator[OwnRows]:
    embed = model.lm.get_input_embeddings()
    learned = model.learned()
    device = embed.weight.device
    lengths = torch.tensor([rollout.tokens for rollout in rollouts], device=device)
    attended = torch.arange(int(lengths.max()), device=device) < lengths[:, None]
    tokens = pad_sequence([_tokens(rollout) for rollout in rollouts], batch_first=True).to(device)
    if any(len(rollout.mixture.positions) for rollout in rollouts):
        inputs = embed(tokens)
        for row, rollout in zip(inputs, rollouts, strict=True):
            at = rollout.mixture.positions
            if len(at):
                row[at.to(device)] = exploration.inputs(embed, *_at(rollout, at, embed.weight), learned).to(row.dtype)
        given = {"inputs_embeds": inputs}
    else:
        given = {"input_ids": tokens}
    with _entering(model.lm.get_output_embeddings()) as entered:
        logits = model.lm(**given, attention_mask=attended, use_cache=False).logits
    for row, hidden, rollout in zip(logits, entered[0], rollouts, strict=True):
        first = rollout.tokens - rollout.generated
        before = slice(first - 1, rollout.tokens - 1)  # the row before a token scores it
        positions = torch.arange(first, rollout.tokens)
        recorded, context = _at(rollout, positions, embed.weight)
        yield OwnRows(rollout, tempered(row[before], temperature), recorded, context, hidden[before])


@contextmanager
def _entering(head: nn.Module) -> Iterator[list[Tensor]]:
    """Yields a list that gets what enters a module."""
    entered: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    try:
        yield entered
    finally:
        handle.remove()


def _tokens(rollout: Rollout) -> Tensor:
    return torch.cat([rollout.prompt_ids, rollout.response_ids])


def _at(rollout: Rollout, positions: Tensor, table: Tensor) -> tuple[Step, RowContext]:
    """Returns what was decided at some positions of the response, ascending, and their positions."""
    device = table.device
    among = torch.isin(rollout.mixture.positions, positions)
    indices = torch.searchsorted(positions, rollout.mixture.positions[among])
    mixed = torch.isin(positions, rollout.mixture.positions)

    def scattered(channel: Tensor) -> Tensor:
        everywhere = channel.new_zeros(len(positions), *channel.shape[1:])
        everywhere[indices] = channel[among]
        return everywhere.to(device)

    record = rollout.mixture.record
    channels: Record = record._replace(ids=record.ids.long()).map(scattered)
    support = None if rollout.support is None else rollout.support.rows()[positions - len(rollout.prompt_ids)]
    step = Step(
        token=_tokens(rollout)[positions].to(device),
        mixed=mixed.to(device),
        **channels._asdict(),
        support=None if support is None else support.to(device),
    )
    return step, RowContext(torch.full_like(positions, rollout.key).to(device), positions.to(device), table)
