"""Decisions and scores of PyTorch at every position of an engine's rollouts, from the model's own logits."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from ngrpo.exploration.base import Step, StepContext
from ngrpo.exploration.runtime.bound import BoundExploration
from ngrpo.exploration.runtime.decide import decide
from ngrpo.exploration.support import token_log_prob
from ngrpo.model_check.comparison import Numbers
from ngrpo.model_check.other_rounding import in_tf32, rounded_anew
from ngrpo.model_check.own_scores import OwnRows, from_own_rows
from ngrpo.model_check.tolerances import LEAST
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.precision import computing_in
from ngrpo.types.rollouts import Rollout

_TOGETHER = 4
"""Rollouts in a padded batch."""
_VARIATIONS = 3
"""Decisions from logits that are changed at random, by as much as another rounding changes them."""
_MOST = 1.0
"""Nats that they are changed by at most."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Expected:
    """Decisions and scores at the N positions of all that was generated.

    Attributes:
        steps: decided from the model's own logits.
        varied: decided from logits that are rounded otherwise and changed a little.
        scores: of what the engine decided, from the model's own logits; float32 [N].
        again: the same from logits that are rounded otherwise; of densities, which a small change may move far, from
            those that are changed a little too; float32 [A, N].
    """

    steps: Step
    varied: list[Step]
    scores: Tensor
    again: Tensor


@dataclass(frozen=True)
class _Own:
    recorded: Step
    step: Step
    score: Tensor
    token_score: Tensor


@dataclass(frozen=True)
class OwnModel:
    """The model that decides what an engine has decided, at each position after the engine's own history.

    So one decision that differs changes no other, and rounding can be told from faults. All methods are collectives
    when the model is sharded.

    Attributes:
        policy: whose language model is run.
        bound: the strategy with its tables.
        temperature: tau.
        numbers: that the engine computes with; those of a sharded model, which computes with no others.
    """

    policy: ScoringModel
    bound: BoundExploration
    temperature: float
    numbers: Numbers

    def expect(self, rollouts: Sequence[Rollout], explored: Sequence[bool]) -> tuple[Step, Expected]:
        """Returns what the engine decided, and what is expected in its place.

        Args:
            rollouts: the engine's, each with a key of its own.
            explored: whether the strategy made them; the others were sampled plainly.
        """
        explores = {rollout.key: one for rollout, one in zip(rollouts, explored, strict=True)}
        generator = torch.Generator(next(self.policy.parameters()).device).manual_seed(0)

        def exact(rows: OwnRows) -> _Own:
            step = self._decide(rows, explores[rows.rollout.key])
            return _Own(rows.recorded, step, self._score(rows), token_log_prob(rows.scaled, rows.recorded.token))

        def varied(rows: OwnRows) -> tuple[Tensor, list[Step]]:
            key = rows.rollout.key
            noise = (token_log_prob(rows.scaled, rows.recorded.token) - token_scores[key]).abs().nan_to_num().mean()
            amount = noise.clamp(LEAST, _MOST)
            moved = [replace(rows, scaled=_moved(rows.scaled, amount, generator)) for _ in range(_VARIATIONS)]
            scored = [rows] if self.bound.strategy.scores_tokens else [rows, *moved]
            return torch.stack([self._score(one) for one in scored]), [
                self._decide(one, explores[key]) for one in moved
            ]

        own = self._run(rollouts, 1, exact)
        token_scores = {rollout.key: one.token_score for rollout, one in zip(rollouts, own, strict=True)}
        with in_tf32() if self.numbers.tf32 else nullcontext(), rounded_anew(self.policy, self.numbers.dtype):
            again, variations = zip(*self._run(rollouts, _TOGETHER, varied), strict=True)
        return _joined([one.recorded for one in own]), Expected(
            _joined([one.step for one in own]),
            [_joined(list(one)) for one in zip(*variations, strict=True)],
            torch.cat([one.score for one in own]).cpu(),
            torch.cat(again, dim=1).cpu(),
        )

    def scores(self, rollouts: Sequence[Rollout]) -> Tensor:
        """Scores rollouts; float32 [N]."""
        return torch.cat(self._run(rollouts, _TOGETHER, self._score)).cpu()

    def _run(self, rollouts: Sequence[Rollout], size: int, use: Callable[[OwnRows], Result]) -> list[Result]:
        with computing_in(self.policy, self.numbers.dtype):
            return from_own_rows(self.policy, rollouts, self.temperature, self.bound.strategy, size, use)

    def _score(self, rows: OwnRows) -> Tensor:
        return self.bound.strategy.log_prob(rows.scaled, rows.recorded, rows.context)

    def _decide(self, rows: OwnRows, explore: bool) -> Step:
        """Decides all positions of a rollout, each with the state that the one before it left."""
        strategy, scaled, context = self.bound.strategy, rows.scaled, self._context(rows)
        wanted = None if explore else torch.zeros(len(scaled), dtype=torch.bool, device=scaled.device)
        while True:  # each time at least one state more is right
            step = decide(strategy, scaled, 1.0, context, wanted)[0]
            if step.state is None:
                return step
            left = torch.cat([step.state.new_zeros(1), step.state[:-1]])
            if torch.equal(left, context.state):
                return step
            context = replace(context, state=left)

    def _context(self, rows: OwnRows) -> StepContext:
        """Returns the context of a rollout's positions, with the state of a first one."""
        strategy, table = self.bound.strategy, rows.context.embedding
        end_ids = torch.tensor(self.bound.end_ids, dtype=torch.int64, device=table.device)
        ends = torch.isin(rows.recorded.token, end_ids).long()
        return StepContext(
            keys=rows.context.keys,
            positions=rows.context.positions,
            embedding=table if strategy.reads_embedding else table[:0],
            ended=ends.cumsum(0) > ends,
            end_ids=end_ids,
            tables={name: one.to(table.device) for name, one in self.bound.tables.items()},
            state=torch.zeros(len(ends) if strategy.stateful else 0, dtype=torch.int32, device=table.device),
            progress=self.bound.progress.to(table.device),
            hidden=rows.hidden if strategy.reads_hidden else None,
        )


def _moved(scaled: Tensor, amount: Tensor, generator: torch.Generator) -> Tensor:
    """Returns logits that are moved by up to ``amount`` nats each."""
    moves = torch.rand(scaled.shape, generator=generator, device=scaled.device) * 2 - 1
    return scaled + amount * moves


def _joined(steps: Sequence[Step]) -> Step:
    """Joins the rows of several steps, on the CPU; their states are left out."""
    channels = [(*step[:-1], None) for step in steps]
    return Step._make(None if parts[0] is None else torch.cat(parts).cpu() for parts in zip(*channels, strict=True))
