"""The comparison of an engine's rollouts with what PyTorch decides and scores in its place."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ngrpo.engine_check import distances
from ngrpo.engine_check.faults import altered
from ngrpo.engine_check.own_decisions import Expected, OwnModel
from ngrpo.model_check.comparison import Numbers
from ngrpo.model_check.tolerances import (
    FACTOR,
    LEAST,
    OF_DENSITIES,
    Deviation,
    deviation,
    nearer_without,
    rounding,
)
from ngrpo.types.records import Step
from ngrpo.types.rollouts import Rollout

COARSE = 0.01
"""Mean distance of decisions that is always allowed in numbers coarser than float32."""

FEW = 3
"""Positions whose decisions may be others in float16, however seldom rounding turns one: near ties are rare in it, so
that a variation of the logits may meet none where the engine meets two, as vLLM on a GPU seems to have done."""

RATIO = 2.0
"""Most of the difference at explored positions over that at plain ones, both relative to rounding, in such numbers."""

PLAIN_SCORES = "log-probs of plain positions"
"""What a finding compares them as."""


@dataclass(frozen=True)
class Finding:
    """Distance of an engine from PyTorch in one respect.

    Attributes:
        rollouts: which ones, such as "rollouts after a weight transfer".
        what: was compared, such as "tokens".
        numbers: that the engine computes with.
        deviation: the figures; of tokens and flags, 1 stands for a position that differs.
        nearer: the fault whose log-probs the engine's are certainly nearer to; "" for none.
    """

    rollouts: str
    what: str
    numbers: Numbers
    deviation: Deviation
    nearer: str = ""

    @property
    def excessive(self) -> bool:
        """Whether it is more than rounding."""
        return self.deviation.excessive or bool(self.nearer)

    @property
    def excess(self) -> float:
        """How many times the limit it is."""
        d = self.deviation
        return max(d.mean / d.mean_limit, d.max / d.max_limit, float(bool(self.nearer)))

    def __str__(self) -> str:
        """The figures as a clause."""
        d, dtype = self.deviation, str(self.numbers.dtype).removeprefix("torch.")
        each = "" if d.max_limit == torch.inf else f" and {d.max_limit:.2g} at each"
        return (
            f"{self.what} of {self.rollouts} differ by {d.mean:.2g} on average and {d.max:.2g} at most at {d.tokens} "
            f"positions, where rounding to {dtype} allows {d.mean_limit:.2g} on average{each}"
            + f", and are nearer to those of {self.nearer}"
            * bool(self.nearer)
        )


def compare(
    own: OwnModel, rollouts: Sequence[Rollout], explored: Sequence[bool], name: str, cached: Sequence[Rollout] = ()
) -> list[Finding]:
    """Compares tokens, mixed flags, mixtures and log-probs of rollouts (a collective when sharded).

    Args:
        own: decides and scores in the engine's place.
        rollouts: the engine's.
        explored: whether the strategy made them.
        name: of the rollouts, in what is said.
        cached: rollouts whose texts are the prompts of some of them.
    """
    recorded, expected = own.expect(rollouts, explored)
    found = [Finding(name, what, own.numbers, one) for what, one in decisions(recorded, expected, own.numbers)]
    made = torch.cat([rollout.generated_log_probs for rollout in rollouts])
    by_strategy = torch.tensor(explored).repeat_interleave(torch.tensor([one.generated for one in rollouts]))
    scored = scores(made, expected, by_strategy, not own.bound.strategy.scores_tokens, own.numbers)
    nearest = nearer(own, rollouts, made, expected.scores, cached)
    return found + [
        Finding(name, f"log-probs of {kind} positions", own.numbers, one, nearest if kind == "explored" else "")
        for kind, one in scored.items()
    ]


def decisions(recorded: Step, expected: Expected, numbers: Numbers) -> list[tuple[str, Deviation]]:
    """Compares what was decided at N positions, by what was compared."""
    compared: list[tuple[str, float, Callable[[Step, Step], Tensor]]] = [
        ("tokens", 1.0, distances.tokens), ("mixed flags", 1.0, distances.flags), ("mixtures", 2.0, distances.mixtures)
    ]  # fmt: skip
    found = []
    for what, whole, distance in compared:
        here = distance(recorded, expected.steps)
        if len(here):
            least = COARSE if _coarse(numbers) else LEAST
            if numbers.dtype == torch.float16:
                least = max(least, (FEW + 0.5) * whole / len(here))
            varied = torch.cat([distance(one, expected.steps) for one in expected.varied])
            one_by_one = what == "mixtures" and not _coarse(numbers)
            found.append((what, _within(here, varied, least, one_by_one)))
    return found


def _within(here: Tensor, varied: Tensor, least: float, one_by_one: bool) -> Deviation:
    """Limits a distance to what variations of the logits make of it: the mean, and that of each position if asked."""
    mean, largest = (float(one) for one in (varied.mean(), varied.max())) if len(varied) else (0.0, 0.0)
    most = max(least, FACTOR * largest) if one_by_one else torch.inf
    return Deviation(float(here.mean()), float(here.max()), max(least, FACTOR * mean), most, len(here))


def scores(
    made: Tensor, expected: Expected, explored: Tensor, densities: bool, numbers: Numbers
) -> dict[str, Deviation]:
    """Compares an engine's log-probs of N positions with the expected scores, of plain and of explored ones.

    In coarse numbers explored positions must be as exact as plain ones too, each relative to its own rounding.

    Args:
        made: the engine's; float32 [N].
        expected: the scores.
        explored: bool [N].
        densities: whether those of explored positions are no log-probs of tokens.
        numbers: that the engine computes with.
    """
    found: dict[str, Deviation] = {}
    noise = {}
    for kind, chosen in (("plain", ~explored), ("explored", explored)):
        if bool(chosen.any()):
            again = expected.again[:, chosen]
            noise[kind] = rounding(expected.scores[chosen].expand_as(again), again)
            least = OF_DENSITIES if densities and kind == "explored" else LEAST
            found[kind] = deviation(expected.scores[chosen], made[chosen], noise[kind], least)
    if _coarse(numbers) and not densities and found.keys() == {"plain", "explored"}:
        exact = max(1.0, found["plain"].mean / max(noise["plain"].mean, LEAST))
        limit = max(LEAST, RATIO * exact * noise["explored"].mean)
        found["explored"] = replace(found["explored"], mean_limit=min(limit, found["explored"].mean_limit))
    return found


def nearer(own: OwnModel, rollouts: Sequence[Rollout], made: Tensor, scored: Tensor, cached: Sequence[Rollout]) -> str:
    """Returns the fault whose log-probs those of an engine are certainly nearer to than to the right ones; "" for none.

    In coarse numbers a fault may change less than rounding allows, but it changes all in one direction. (A collective
    when sharded.)
    """
    if not own.bound.strategy.mixes or not own.bound.strategy.scores_tokens:
        return ""
    faults = [(name, own.scores(wrong)) for name, wrong in altered(rollouts, cached)]  # all: they are collectives
    return next((name for name, wrong in faults if nearer_without(scored, wrong, made)), "")


def worst(findings: Iterable[Finding]) -> Finding | None:
    """Returns the finding that exceeds its limit most; None if none does."""
    return max((one for one in findings if one.excessive), key=lambda one: one.excess, default=None)


def _coarse(numbers: Numbers) -> bool:
    return numbers.tf32 or torch.finfo(numbers.dtype).eps > torch.finfo(torch.float32).eps
