"""The contract of schedulers: which requests make the responses to a prompt, round by round."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from ngrpo.exploration.base import Exploration
from ngrpo.rollout.scheduling.tree import Branch, Tree
from ngrpo.types.rollouts import Prefix


class Scheduler(ABC):
    """Decides how the G responses to a prompt come about.

    One call a round and prompt: it sees the tree as it stands and returns the branches that are made next, together
    with those of all other prompts. A frozen dataclass whose `branches` is a function of the tree alone, so that a tree
    does not depend on what else is in its batch, and a resumed run makes it again. To add one, write the class in any
    file and point ``rollout.scheduler._target_`` at it.

    Attributes:
        one_round: all G responses are asked for at once, from the prompt.
        forks: branches have generated tokens in common.
        reads_log_probs: branches depend on the log-probs of tokens.
    """

    one_round: ClassVar[bool] = False
    forks: ClassVar[bool] = True
    reads_log_probs: ClassVar[bool] = False

    @abstractmethod
    def branches(self, tree: Tree) -> Sequence[Branch]:
        """Returns what to make next; nothing when the tree has its ``size`` whole responses."""

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
        if strategy.stateful and not self.one_round:
            return "it needs at each step what it kept of the step before, which no branch starts with"
        return None
