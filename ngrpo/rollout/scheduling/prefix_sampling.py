"""Prefix sampling: hard problems continue a right response, easy ones a wrong response."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ngrpo.errors import SettingError
from ngrpo.rollout.scheduling.base import Example, GroupOutcome, LearningScheduler
from ngrpo.rollout.scheduling.tree import Branch, Tree
from ngrpo.types.rollouts import Prefix
from ngrpo.types.serialization import deserialize_rollout, serialize_rollout


@dataclass(frozen=True)
class _Known:
    """What is known of a problem: f, and a response of either kind."""

    share: float = 0.0
    right: Example | None = None
    wrong: Example | None = None


@dataclass(frozen=True)
class PrefixSampling(LearningScheduler):
    """All G responses to a prompt continue one beginning, so that about half of them are right.

        f' = clamp(f + rate (1/2 - share of right answers), -most, most)

    (Prefix sampling, arXiv 2605.05112, of which the abstract and a summary were read: groups that mostly fail replay a
    beginning of a right response, those that mostly pass one of a wrong response. The rule, which its text leaves open,
    is ours.) f > 0 gives the first ``floor(f L)`` of the L tokens of the problem's latest right response, f < 0 those
    of a wrong one. It is 0 at first; where there is no such response nothing is given. Neither the end of the reasoning
    nor the answer is ever given.

    Given tokens are context: they and their records of mixed positions are replayed, nothing is learned from them, and
    they are in no count of tokens. They count against ``rollout.max_new_tokens``; rewards see the whole text. Responses
    of any age are continued, fed through the present embedding table. Problems that never come again, as those of the
    embedded demo, are never given anything.

    Attributes:
        rate: step of f for a share that is off by 1.
        most: largest size of f, below 1.
        known: what it has learned, by the problem's key.
    """

    one_round: ClassVar[bool] = True
    forks: ClassVar[bool] = False
    rate: float = 0.5
    most: float = 0.8
    known: dict[int, _Known] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.rate >= 0:
            raise SettingError(f"rollout.scheduler.rate={self.rate} leads away from one half; choose 0 or more.")
        if not 0 <= self.most < 1:
            raise SettingError(
                f"rollout.scheduler.most={self.most} leaves nothing to generate; choose a share in [0, 1)."
            )

    def branches(self, tree: Tree) -> Sequence[Branch]:
        """See `Scheduler`."""
        return [Branch()] * tree.missing

    def beginning(self, problem: int, prompt_ids: Sequence[int]) -> Prefix | None:
        """See `Scheduler`; a stored response to another prompt, such as one with another date, is not continued."""
        known = self.known.get(problem, _Known())
        example = known.right if known.share > 0 else known.wrong
        if example is None or example.rollout.prompt_ids.tolist() != list(prompt_ids):
            return None
        count = min(given_tokens(known.share, example.rollout.length), example.most)
        return example.rollout.cut(count) if count else None

    def observe(self, outcomes: Sequence[GroupOutcome]) -> None:
        """See `LearningScheduler`."""
        for one in outcomes:
            known = self.known.get(one.problem, _Known())
            share = steered(known.share, one.pass_rate, self.rate, self.most)
            self.known[one.problem] = _Known(share, one.right or known.right, one.wrong or known.wrong)

    def state_dict(self) -> dict[str, Any]:
        """See `LearningScheduler`."""
        return {
            "known": [
                {"problem": problem, "share": known.share, "right": _plain(known.right), "wrong": _plain(known.wrong)}
                for problem, known in self.known.items()
            ]
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `LearningScheduler`."""
        self.known.clear()
        for one in state["known"]:
            self.known[one["problem"]] = _Known(one["share"], _example(one["right"]), _example(one["wrong"]))


def steered(share: float, pass_rate: float | None, rate: float, most: float) -> float:
    """``clamp(f + rate (1/2 - pass rate), -most, most)``; f where no response was scored."""
    return share if pass_rate is None else max(-most, min(most, share + rate * (0.5 - pass_rate)))


def given_tokens(share: float, length: int) -> int:
    """``floor(|f| L)``."""
    return int(abs(share) * length)


def _plain(example: Example | None) -> dict[str, Any] | None:
    return None if example is None else {"rollout": serialize_rollout(example.rollout), "most": example.most}


def _example(plain: dict[str, Any] | None) -> Example | None:
    return None if plain is None else Example(deserialize_rollout(plain["rollout"]), plain["most"])
