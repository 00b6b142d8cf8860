"""A scheduler is tried before a model is loaded."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from ngrpo.entrypoints.scheduler_trial import try_scheduler
from ngrpo.entrypoints.validation import check_scheduler
from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.rollout.scheduling.at_positions import ForkAtMixtures, ForkAtSurprise
from ngrpo.rollout.scheduling.at_share import ForkAtShare
from ngrpo.rollout.scheduling.base import GroupOutcome, LearningScheduler, Scheduler
from ngrpo.rollout.scheduling.independent import IndependentSamples
from ngrpo.rollout.scheduling.latr import LookaheadTree
from ngrpo.rollout.scheduling.prefix_sampling import PrefixSampling
from ngrpo.rollout.scheduling.segments import ForkAtSegments
from ngrpo.rollout.scheduling.tree import Branch, Tree
from ngrpo.rollout.settings import RolloutSettings

SHIPPED: list[Scheduler] = [
    IndependentSamples(), ForkAtShare(), ForkAtSegments(), ForkAtSegments(segment=3), ForkAtSurprise(),
    ForkAtMixtures(), LookaheadTree(), PrefixSampling(),
]  # fmt: skip


@dataclass(frozen=True)
class Raises(Scheduler):
    """Divides by the number of rounds."""

    def branches(self, tree: Tree) -> Sequence[Branch]:
        return [Branch()] * (tree.size // tree.rounds)


@dataclass(frozen=True)
class Begins(IndependentSamples):
    """Gives text."""

    def beginning(self, problem: int, prompt_ids: Sequence[int]) -> Any:
        return "Let us think"


@dataclass(frozen=True)
class Counts(LearningScheduler):
    """Keeps what no checkpoint can hold."""

    seen: list[Any] = field(default_factory=list)

    def branches(self, tree: Tree) -> Sequence[Branch]:
        return [Branch()] * tree.missing

    def observe(self, outcomes: Sequence[GroupOutcome]) -> None:
        self.seen.extend(outcomes)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen[:] = state["seen"]


@pytest.mark.parametrize("scheduler", SHIPPED, ids=str)
def test_what_is_shipped_passes_and_is_as_before(scheduler: Scheduler) -> None:
    for size, limit in ((1, 4), (8, 64), (5, 8192)):
        for strategy in (NeighborMixing(), HybridReasoning(), GumbelSoftThinking()):
            try_scheduler(scheduler, strategy, size, limit)
    if isinstance(scheduler, PrefixSampling):
        assert not scheduler.known


@pytest.mark.parametrize(
    ("scheduler", "said"),
    [
        (Raises(), r"rollout.scheduler raised ZeroDivisionError.*test_scheduler_trial.py.* on a trial; fix it"),
        (Begins(), r"rollout.scheduler.beginning returned a str; return a Prefix or None"),
        (Counts(), r"rollout.scheduler has a state that no checkpoint can hold"),
    ],
)
def test_faults_are_found(scheduler: Scheduler, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        try_scheduler(scheduler, TokenSampling(), 4, 32)
    if isinstance(scheduler, Counts):
        assert not scheduler.seen


@pytest.mark.parametrize(
    ("scheduler", "strategy", "said"),
    [
        (ForkAtShare(), GaussianSoftTokens(), "exploration=GaussianSoftTokens: its noise is drawn from"),
        (ForkAtSurprise(), GumbelSoftThinking(), "exploration=GumbelSoftThinking: what it scores are densities"),
        (ForkAtMixtures(), TokenSampling(), "exploration=TokenSampling: it mixes nothing; set rollout/scheduler=ind"),
    ],
)
def test_strategies_that_cannot_branch_are_refused(scheduler: Scheduler, strategy: Exploration, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        check_scheduler(RolloutSettings(scheduler=scheduler), strategy)
    check_scheduler(RolloutSettings(scheduler=PrefixSampling()), GaussianSoftTokens())


def test_what_is_no_scheduler_is_refused() -> None:
    scheduler: Any = TokenSampling()
    with pytest.raises(SettingError, match=r"rollout.scheduler makes a TokenSampling; name a scheduler, such as"):
        check_scheduler(RolloutSettings(scheduler=scheduler), TokenSampling())


def test_a_state_between_steps_is_refused_where_responses_start_with_a_prefix() -> None:
    @dataclass(frozen=True)
    class Rests(TokenSampling):
        stateful = True

    for scheduler in SHIPPED[1:]:
        assert "no prefix holds" in (scheduler.refusal(Rests()) or "")
    assert SHIPPED[0].refusal(Rests()) is None
