"""Credit assignment: from one advantage a response to advantages for its tokens."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from ngrpo.algo.groups import Groups
from ngrpo.algo.moments import Reduce, whitened
from ngrpo.algo.segments import discounted_suffix_sum, sequence_index, tokens_left
from ngrpo.errors import SettingError
from ngrpo.types.paths import Path


@dataclass(frozen=True)
class ScoredBatch:
    """One rank's part of a rollout batch, packed: S responses of N tokens in all, on the CPU.

    Attributes:
        groups: which prompt each response answers.
        rewards: float [S]; NaN marks an unscored sample.
        answers: int64 [S]; equal numbers for equal final answers, responses without an answer included.
        lengths: int64 [S], each at least 1.
        truncated: bool [S], whether the response ran into the length limit.
        reduce: over the ranks.
        old_log_prob: float [N] under the policy that made the rollouts, or None where no advantage needs it.
        ref_log_prob: float [N] under the reference, or None without one.
        values: float [N], the critic's value of the state before each token, or None without a critic.
        bootstrap: float [S], its value after the last token of a truncated response and 0 after a finished one; None
            counts as 0 everywhere.
        bonus: float [S], added to the advantages of the responses; None is 0.
        paths: the nodes of a tree that each response is made of, None for one that has no tokens in common with others;
            S, empty where none has.
    """

    groups: Groups
    rewards: Tensor
    answers: Tensor
    lengths: Tensor
    truncated: Tensor
    reduce: Reduce
    old_log_prob: Tensor | None = None
    ref_log_prob: Tensor | None = None
    values: Tensor | None = None
    bootstrap: Tensor | None = None
    bonus: Tensor | None = None
    paths: Sequence[Path | None] = ()


class Credited(NamedTuple):
    """Result of a credit assignment.

    Attributes:
        advantages: float [A, N]. The loss adds the surrogates of the A channels, which is not the surrogate of the
            sum: the clip sees each channel's sign by itself. NaN excludes a whole response.
        returns: float [N], what a critic learns to predict; None without one.
    """

    advantages: Tensor
    returns: Tensor | None = None


class Credit(ABC):
    """Assigns the advantages of responses to their tokens.

    Attributes:
        token_level: tokens of one response may get different advantages.
        needs_values: a critic is needed.
        needs_old_log_prob: `ScoredBatch.old_log_prob` is read.
    """

    token_level: ClassVar[bool] = False
    needs_values: ClassVar[bool] = False
    needs_old_log_prob: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, batch: ScoredBatch, advantages: Tensor, penalty: Tensor) -> Credited:
        """Assigns.

        Args:
            batch: the rollouts; its rewards are those that the advantages were made from.
            advantages: float [S]; NaN excludes a response.
            penalty: float [N], to be taken off the token rewards; only where `token_level`.
        """


@dataclass(frozen=True)
class Broadcast(Credit):
    """``A_t = A``: every token of a response gets the response's advantage."""

    def __call__(self, batch: ScoredBatch, advantages: Tensor, penalty: Tensor) -> Credited:
        """See `Credit`."""
        return Credited(advantages[sequence_index(batch.lengths)][None])


@dataclass(frozen=True)
class DiscountedReturns(Credit):
    """``A_t = sum_{s >= t} gamma^(s - t) r_s``, r the penalties and, at the last token, the response's advantage.

    (REINFORCE++, arXiv 2501.03262.) Whitened over the tokens of the whole rollout batch on all ranks: long responses
    weigh more in mean and variance, so that a token's sign may differ from its response's.

    Attributes:
        gamma: discount, in [0, 1].
        whiten: subtract the mean and divide by the standard deviation (unbiased variance, + 1e-8).
    """

    token_level: ClassVar[bool] = True
    gamma: float = 1.0
    whiten: bool = True

    def __post_init__(self) -> None:
        _check_fraction("gamma", self.gamma)

    def __call__(self, batch: ScoredBatch, advantages: Tensor, penalty: Tensor) -> Credited:
        """See `Credit`."""
        rewards = token_rewards(advantages, penalty, batch.lengths)
        returns = discounted_suffix_sum(rewards, batch.lengths, self.gamma)
        return Credited((whitened(returns, batch.reduce) if self.whiten else returns)[None])


@dataclass(frozen=True)
class GeneralisedAdvantage(Credit):
    """`gae` of the token rewards and the critic's values (PPO, arXiv 1707.06347).

    Attributes:
        gamma: discount, in [0, 1].
        lam: lambda in [0, 1]; 1 for language models, where it makes A_t the return minus the value.
        whiten: the advantages, as in `DiscountedReturns`; the returns stay as they are.
    """

    token_level: ClassVar[bool] = True
    needs_values: ClassVar[bool] = True
    gamma: float = 1.0
    lam: float = 1.0
    whiten: bool = True

    def __post_init__(self) -> None:
        _check_fraction("gamma", self.gamma)
        _check_fraction("lam", self.lam)

    def __call__(self, batch: ScoredBatch, advantages: Tensor, penalty: Tensor) -> Credited:
        """See `Credit`; raises ValueError without values."""
        if batch.values is None:
            raise ValueError("generalised advantages need values, which are None")
        rewards = token_rewards(advantages, penalty, batch.lengths)
        found, returns = gae(rewards, batch.values, batch.lengths, self.gamma, self.lam, batch.bootstrap)
        return Credited((whitened(found, batch.reduce) if self.whiten else found)[None], returns)


def token_rewards(advantages: Tensor, penalty: Tensor, lengths: Tensor) -> Tensor:
    """The response's advantage at its last token, minus the penalty at every token; [S], [N], [S] -> [N]."""
    last = tokens_left(lengths) == 0
    return advantages[sequence_index(lengths)].masked_fill(~last, 0.0) - penalty


def gae(
    rewards: Tensor, values: Tensor, lengths: Tensor, gamma: float, lam: float, bootstrap: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """``delta_t = r_t + gamma V_{t+1} - V_t``, ``A_t = delta_t + gamma lam A_{t+1}`` (arXiv 1506.02438, eqs. 11, 16).

    Args:
        rewards: float [N].
        values: float [N], of the state before each token.
        lengths: int64 [S].
        gamma: discount.
        lam: lambda.
        bootstrap: float [S], V after the last token; None is 0.

    Returns:
        Advantages [N] and returns ``A + V`` [N].
    """
    after = values.new_zeros(lengths.shape) if bootstrap is None else bootstrap
    last = tokens_left(lengths) == 0
    following = values.roll(-1).where(~last, after[sequence_index(lengths)])
    advantages = discounted_suffix_sum(rewards + gamma * following - values, lengths, gamma * lam)
    return advantages, advantages + values


def _check_fraction(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise SettingError(f"algo.credit.{name}={value} is not a discount; choose a value in [0, 1].")
