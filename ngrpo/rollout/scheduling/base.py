"""The contract of schedulers: which requests make the responses to a prompt, round by round."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ngrpo.exploration.base import Exploration
from ngrpo.rollout.scheduling.tree import Branch, Tree
from ngrpo.types.rollouts import Prefix, Rollout


class Scheduler(ABC):
    """Decides how the G responses to a prompt come about.

    One call a round and prompt: it sees the tree as it stands and returns the branches that are made next, together
    with those of all other prompts. A frozen dataclass whose `branches` is a function of the tree alone, so that a tree
    does not depend on what else is in its batch, and a resumed run makes it again. To add one, write the class in any
    file and point ``rollout.scheduler._target_`` at it.

    Attributes:
        one_round: all G responses are asked for at once, from the prompt.
        forks: branches have generated tokens in common.
        prefixes: responses start with tokens that another request made.
        reads_log_probs: branches depend on the log-probs of tokens.
        reads_distributions: branches depend on `ngrpo.types.rollouts.Rollout.distributions`, which engines record then.
    """

    one_round: ClassVar[bool] = False
    forks: ClassVar[bool] = True
    prefixes: ClassVar[bool] = True
    reads_log_probs: ClassVar[bool] = False
    reads_distributions: ClassVar[bool] = False

    @abstractmethod
    def branches(self, tree: Tree) -> Sequence[Branch]:
        """Returns what to make next; nothing when the tree has its ``size`` whole responses."""

    def given_up(self, tree: Tree) -> Collection[int]:
        """Returns the numbers of whole responses that are none of the G; asked anew after each round. Default: none."""
        return ()

    def beginning(self, problem: int, prompt_ids: Sequence[int]) -> Prefix | None:
        """Returns the tokens that are given to all responses to a prompt; None for none.

        Args:
            problem: its key.
            prompt_ids: [P].
        """
        return None

    def refusal(self, strategy: Exploration) -> str | None:
        """Returns why the rollouts of a strategy cannot be scheduled so; None if they can."""
        if self.forks and strategy.noisy:
            return (
                "its noise is drawn from a rollout's key, so that a branch cannot have the inputs that it started with"
            )
        if self.reads_log_probs and not strategy.scores_tokens:
            return "what it scores are densities, and no probabilities of tokens"
        if self.prefixes and strategy.stateful:
            return "it needs at each step what it kept of the step before, which no prefix holds"
        return None


@dataclass(frozen=True)
class Example:
    """A response that others may start with.

    Attributes:
        rollout: tokens and record.
        most: the most first tokens of it that give neither the end of the reasoning nor the answer away.
    """

    rollout: Rollout
    most: int


@dataclass(frozen=True)
class GroupOutcome:
    """What became of a group.

    Attributes:
        problem: the key of its problem.
        pass_rate: the share of right answers among the scored ones; None without one.
        right: the first right response; None without one.
        wrong: the first scored one that is wrong; None without one.
    """

    problem: int
    pass_rate: float | None
    right: Example | None
    wrong: Example | None


class LearningScheduler(Scheduler):
    """A scheduler whose decisions depend on what became of earlier groups; its state is in checkpoints."""

    @abstractmethod
    def observe(self, outcomes: Sequence[GroupOutcome]) -> None:
        """Is told once an iteration of all groups that were generated for it, dropped ones too, on all ranks."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Returns what it has learned, as numbers, text, tensors, lists and dictionaries; the same on every rank."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores it."""
