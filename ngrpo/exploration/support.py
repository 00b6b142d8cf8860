"""Truncated supports: how they are drawn from, recorded and scored.

A token that was drawn from a set S of likely tokens has the probability p(o) / sum_{v in S} p(v). Which tokens are in S
was decided by the engine's logits. The trainer's differ from them in the last bits, and after an optimiser step in
more, so a recorded threshold would give other sets where a logit lies near it; and then the ratio of a token that has
left the set would be 0. Therefore the ids of S are recorded, position by position, and everything that is scored
later is scored on them: the ratio of the first step is 1 whatever rounds otherwise, and no policy can give the token
that was drawn a probability of 0.

What it costs: C int32 a token on the engine's device while a rollout runs (C = 128: 512 bytes, where a bit for each of
151,936 tokens would be 18,992), and 4 bytes for each id that a set really has from then on, a few tens of bytes a
token. A set of more than C ids is cut to its C most likely ones before the token is drawn, so that the record is
always the set that was drawn from. min-p is bounded by 1 / (p_min max p): of 0.1, only positions whose most likely
token has less than 0.08 can reach 128. Which of equally likely ids are cut there is the device's choice, and recorded.
"""

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.context import StepContext
from ngrpo.types.records import Step
from ngrpo.types.support import NO_ID
from ngrpo.utils.sorted_rows import sorted_rows


def check_size(size: int) -> None:
    """Refuses a negative ``exploration.largest_support``."""
    if size < 0:
        raise SettingError(
            f"exploration.largest_support={size} is negative; 128 is usual, and 0 records none, for evaluation."
        )


def no_more_than_ids(size: int, logits: Tensor) -> int:
    """Returns ``size``, or the number of ids if it is smaller; logits are [R, V].

    By a comparison, which compiled code checks once. `min` would be a size of its own there, which changes with V.
    """
    return size if size <= logits.shape[-1] else logits.shape[-1]


def likeliest(logits: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Returns the largest logits of each row and their ids, the smaller id first where they are equal.

    Args:
        logits: [R, V].
        size: C; a vocabulary of fewer tokens is filled up with -inf.

    Returns:
        [R, C], descending, and int64 [R, C].
    """
    found, _ = sorted_rows(logits.topk(no_more_than_ids(size, logits)).indices)
    values, order = sorted_rows(logits.gather(-1, found), descending=True)
    ids = found.gather(-1, order)
    missing = size - ids.shape[-1]
    if missing > 0:
        values = torch.nn.functional.pad(values, (0, missing), value=-torch.inf)
        ids = torch.nn.functional.pad(ids, (0, missing))
    return values, ids


def draw(kept: Tensor, ids: Tensor, ctx: StepContext) -> Step:
    """Draws a token a row from softmax(kept), as `StepContext.sample` does from all of the vocabulary.

    Args:
        kept: logits, -inf where an id is not in the set; float32 [R, C].
        ids: theirs, the most likely one first; int64 [R, C].
        ctx: of the same rows.

    Returns:
        The step of ordinary decoding, with its support.
    """
    drawn = (kept + ctx.gumbel("token", ids)).argmax(-1, keepdim=True)
    support = ids.masked_fill(kept == -torch.inf, NO_ID)
    return Step.plain(ids.gather(-1, drawn)[:, 0], support)


def within(values: Tensor, support: Tensor) -> Tensor:
    """Returns the values of each row's set; [R, V], int64 [R, C] -> [R, C], -inf in the places that have no id."""
    return values.gather(-1, support.clamp(min=0)).masked_fill(support == NO_ID, -torch.inf)


def on_support(logits: Tensor, token: Tensor, support: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the logits of each row's set, and the place of its token among them; [R, C], int64 [R]."""
    return within(logits, support), (support == token[:, None]).int().argmax(-1)


def masked_to(logits: Tensor, support: Tensor) -> Tensor:
    """Returns all logits, -inf outside of each row's set; [R, V] -> [R, V]."""
    filled = support != NO_ID
    ids = torch.where(filled, support, support[:, :1].clamp(min=0))
    kept = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, ids, True)
    return logits.masked_fill(~kept & filled.any(-1, keepdim=True), -torch.inf)


def token_log_prob(logits: Tensor, token: Tensor, support: Tensor | None = None) -> Tensor:
    """Returns the log-prob of each row's token under softmax(logits), renormalised on the set that it was drawn from.

    Args:
        logits: float [R, V].
        token: int64 [R].
        support: see `Step`; None for the whole vocabulary in all rows.

    Returns:
        [R].
    """
    if support is None:
        return logits.log_softmax(-1).gather(-1, token[:, None])[:, 0]
    whole = (support == NO_ID).all(-1)
    # Rows of nothing but -inf would turn the gradient of the unused branch into NaN.
    normaliser = within(logits, support).masked_fill(whole[:, None], 0.0).logsumexp(-1)
    chosen = logits.gather(-1, token[:, None])[:, 0]
    return chosen - torch.where(whole, logits.logsumexp(-1), normaliser)
