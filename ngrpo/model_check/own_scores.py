"""Scores of rollouts from the model's own logits: transformers' forward and attention, one padded batch, no packing.

The slow and obvious way, which shares with the trainer the weights, and the strategy's definitions of an input vector
and of a score, and nothing else: not the attention, the packing, the replay, the head, the compiler or the dropout.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from ngrpo.exploration.base import Exploration, RowContext
from ngrpo.modeling.attention import IMPLEMENTATION
from ngrpo.modeling.gathering import reshard
from ngrpo.modeling.policy import ScoringModel
from ngrpo.types.records import Record, Step
from ngrpo.types.rollouts import Rollout

_OWN_ATTENTION = "eager"
"""Written out in each model's own file, soft caps and all; every model has it."""


@torch.no_grad()
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
    batches = [rollouts] if together else [[rollout] for rollout in rollouts]
    with _as_made(model.lm):
        made = [model.run(partial(_scores, batch, temperature, exploration)) for batch in batches]
    reshard(model)
    return torch.cat(made).cpu()


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


def _scores(rollouts: Sequence[Rollout], temperature: float, exploration: Exploration, model: ScoringModel) -> Tensor:
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
        output = model.lm(inputs_embeds=inputs, attention_mask=attended, use_cache=False)
    else:
        output = model.lm(input_ids=tokens, attention_mask=attended, use_cache=False)
    scores = []
    for row, rollout in zip(output.logits, rollouts, strict=True):
        first = rollout.tokens - rollout.generated
        scaled = row[first - 1 : rollout.tokens - 1].float() / temperature  # the row before a token scores it
        positions = torch.arange(first, rollout.tokens)
        step, context = _at(rollout, positions, embed.weight)
        scores.append(exploration.log_prob(scaled, step, context))
    return torch.cat(scores)


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
    step = Step(_tokens(rollout)[positions].to(device), mixed.to(device), *channels)
    return step, RowContext(torch.full_like(positions, rollout.key).to(device), positions.to(device), table)
