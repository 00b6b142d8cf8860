"""The comparison of trainer and engine with the model's own logits, on rollouts that the engine makes."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.random import request_key
from ngrpo.model_check.other_rounding import in_tf32, rounded_anew
from ngrpo.model_check.own_scores import own_scores
from ngrpo.model_check.tolerances import LEAST, OF_DENSITIES, Deviation, deviation, nearer_without, rounding
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.precision import computing_in
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.types.rollouts import Request, Rollout, Sampling

_SEED = 20
_PROMPTS = (40, 11)
"""Tokens of the prompts: two, so that sequences of different lengths are packed."""
_TOKENS = 24
"""Of each response."""
_PLAIN, _EXPLORING = 2, 4
"""Rollouts a prompt: sampled plainly, and by the strategy."""


@dataclass(frozen=True)
class Numbers:
    """Number format that a path computes with.

    Attributes:
        dtype: of its numbers.
        tf32: whether it multiplies float32 numbers in TF32, whatever PyTorch's setting is.
    """

    dtype: torch.dtype
    tf32: bool = False

    @classmethod
    def of(cls, engine: RolloutEngine) -> "Numbers":
        """Returns those of an engine; TF32 concerns float32 alone."""
        return cls(engine.dtype, engine.tf32 and engine.dtype == torch.float32)


@dataclass(frozen=True)
class Finding:
    """Distance of one path from the model's own logits on one kind of rollouts.

    Attributes:
        path: "trainer" or "engine".
        kind: "plain", or "explored" by the strategy.
        numbers: that the path computes with.
        deviation: the figures.
    """

    path: str
    kind: str
    numbers: Numbers
    deviation: Deviation

    def __str__(self) -> str:
        """The figures as a clause."""
        d, dtype = self.deviation, str(self.numbers.dtype).removeprefix("torch.")
        return (
            f"{d.mean:.2g} nats on average and {d.max:.2g} at most over {d.tokens} tokens of {self.kind} rollouts, "
            f"where rounding to {dtype} allows {d.mean_limit:.2g} and {d.max_limit:.2g}"
            + ", and is nearer to its logits without the mixtures"
            * d.without_mixtures
        )


def too_coarse(path: str, of: str, numbers: Numbers, limit: float, finer: str) -> str:
    """Returns the warning of a model that rounds so coarsely that passing says little.

    Args:
        path: the model's.
        of: whose faults would pass.
        numbers: that it computes with.
        limit: nats on average that rounding allows.
        finer: how it computes in float32, unless it does.
    """
    dtype = str(numbers.dtype).removeprefix("torch.")
    remedy = "" if numbers.dtype == torch.float32 else f", or {finer}"
    return (
        f"rounding to {dtype} changes the log-probs of model.path={path} so much that faults of {of} of {limit:.2g} "
        f"nats on average would pass for it; choose another model{remedy}."
    )


def requests(vocabulary: int, max_prompt_tokens: int, explores: bool) -> list[Request]:
    """Returns requests for random prompts, plain ones and, if there is a strategy to try, its own.

    Args:
        vocabulary: number of token ids.
        max_prompt_tokens: longest prompt that the engine takes.
        explores: whether the strategy mixes.
    """
    generator = torch.Generator().manual_seed(_SEED)
    made = []
    for number, length in enumerate(_PROMPTS):
        ids = tuple(torch.randint(vocabulary, (min(length, max_prompt_tokens),), generator=generator).tolist())
        for sample in range(_PLAIN + explores * _EXPLORING):
            made.append(Request(ids, request_key(_SEED, 0, number, sample), explore=sample >= _PLAIN))
    return made


def sampling(temperature: float, max_new_tokens: int) -> Sampling:
    """Returns how the rollouts are made; no token ends them."""
    return Sampling(temperature, min(_TOKENS, max_new_tokens), ())


@dataclass(frozen=True)
class OwnModel:
    """The model's own scores, each in two batchings (all are collectives when sharded).

    Attributes:
        policy: whose language model is run.
        exploration: of the rollouts.
        temperature: tau.
        precision: makes the context that the trainer's forward passes belong into.
        numbers: that the trainer computes with.
    """

    policy: ScoringModel
    exploration: Exploration
    temperature: float
    precision: Callable[[], AbstractContextManager[None]]
    numbers: Numbers

    def like_trainer(self, rollouts: Sequence[Rollout]) -> tuple[Tensor, Tensor]:
        """Computes as the trainer does."""
        with self.precision():
            return self._twice(rollouts, self.numbers)

    def like_engine(self, rollouts: Sequence[Rollout], engine: Numbers) -> tuple[Tensor, Tensor]:
        """Computes as an engine does that computes with other numbers.

        A sharded model computes with the trainer's only; its second batching is rounded like the engine's then.
        """
        with computing_in(self.policy, engine.dtype):
            return self._twice(rollouts, engine)

    def without_mixtures(self, rollouts: Sequence[Rollout]) -> Tensor | None:
        """Scores the rollouts as if nothing had been mixed; None for one that mixes nothing, or scores otherwise.

        In the trainer's numbers; only the difference to its own scores counts.
        """
        if not self.exploration.mixes or not self.exploration.scores_tokens:
            return None
        with self.precision():
            return self._scores([rollout.without_mixtures() for rollout in rollouts], together=False)

    def _twice(self, rollouts: Sequence[Rollout], numbers: Numbers) -> tuple[Tensor, Tensor]:
        own = self._scores(rollouts, together=False)
        with in_tf32() if numbers.tf32 else nullcontext(), rounded_anew(self.policy, numbers.dtype):
            return own, self._scores(rollouts, together=True)

    def _scores(self, rollouts: Sequence[Rollout], together: bool) -> Tensor:
        return own_scores(self.policy, rollouts, self.temperature, self.exploration, together)


def compare(
    own: OwnModel, rollouts: Sequence[Rollout], explored: Sequence[bool], trainer: Sequence[Tensor], engine: Numbers
) -> list[Finding]:
    """Compares both paths with the model's own logits (a collective when sharded).

    Args:
        own: makes the scores to compare with.
        rollouts: the engine's, with its log-probs.
        explored: which of them the strategy made.
        trainer: its log-probs of what they generated; float32 [N] each.
        engine: what the engine computes with.
    """
    scores = own.like_trainer(rollouts)
    densities = not own.exploration.scores_tokens
    without = own.without_mixtures(rollouts)
    found = _findings("trainer", scores, without, trainer, explored, own.numbers, densities)
    if isinstance(own.policy, FSDPModule):  # it computes in no other dtype than the trainer's
        engine = max(engine, own.numbers, key=lambda numbers: torch.finfo(numbers.dtype).eps)
    if engine != own.numbers:
        scores = own.like_engine(rollouts, engine)
    return found + _findings(
        "engine", scores, without, [r.generated_log_probs for r in rollouts], explored, engine, densities
    )


def _findings(
    path: str,
    scores: tuple[Tensor, Tensor],
    without: Tensor | None,
    made: Sequence[Tensor],
    explored: Sequence[bool],
    numbers: Numbers,
    densities: bool,
) -> list[Finding]:
    own, again = scores
    by_strategy = torch.tensor(explored).repeat_interleave(torch.tensor([len(one) for one in made]))
    found = []
    for kind, chosen in (("plain", ~by_strategy), ("explored", by_strategy)):
        if not bool(chosen.any()):
            continue
        noise = rounding(own[chosen], again[chosen])
        least = OF_DENSITIES if densities and kind == "explored" else LEAST
        here = torch.cat(list(made))[chosen]
        deviates = deviation(own[chosen], here, noise, least)
        if without is not None and kind == "explored":
            deviates = replace(deviates, without_mixtures=nearer_without(own[chosen], without[chosen], here))
        found.append(Finding(path, kind, numbers, deviates))
    return found
