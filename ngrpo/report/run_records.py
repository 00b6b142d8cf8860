"""The records of a run, from which its report is made: iterations and rollouts."""

from dataclasses import dataclass, field

from ngrpo.compat.attributes import serve_old_names

serve_old_names(__name__)


@dataclass(frozen=True)
class ProblemRate:
    """The success rate of one problem.

    Attributes:
        key: of the problem, see `ngrpo.types.problems.Problem`.
        solved: right responses.
        tried: responses.
    """

    key: int
    solved: int
    tried: int


@dataclass(frozen=True)
class IterationRecord:
    """One training iteration.

    Attributes:
        iteration: from 0.
        metrics: by TensorBoard tag; finite ones only.
        problems: those of the iteration's prompts, over all ranks.
    """

    iteration: int
    metrics: dict[str, float]
    problems: list[ProblemRate]


@dataclass(frozen=True)
class MixedToken:
    """The mixture at a mixed position.

    Attributes:
        place: index in the response, from 0.
        names: the texts of the mixture's tokens, the anchor first; empty where a vector was recorded instead.
        weights: theirs.
        noise: standard deviation of the noise on the vector; None without.
    """

    place: int
    names: list[str]
    weights: list[float]
    noise: float | None


@dataclass(frozen=True)
class StoredRollout:
    """One response.

    Attributes:
        group: index of its prompt in the batch.
        question: the problem's text.
        reference: its answer.
        answer: what the verifier took for the response's; None without one.
        verdict: see `ngrpo.types.scores.Verdict`.
        reward: None where the reference could not be used.
        advantage: mean over its tokens; None where the response was excluded from the loss.
        stop: why it ended.
        length: response tokens in all, T.
        tokens: the texts of the first of them.
        log_probs: theirs in nats, under the policy that made them; NaN for those that were given (a prefix).
        entropies: of the policy before each of them, in nats, when it learned from them; NaN for those that were given,
            empty where unknown.
        mixed: the mixed positions among them.
        forks: the indices of the tokens with which it leaves responses that it had the ones before in common with.
    """

    group: int
    question: str
    reference: str
    answer: str | None
    verdict: str
    reward: float | None
    advantage: float | None
    stop: str
    length: int
    tokens: list[str]
    log_probs: list[float]
    entropies: list[float]
    mixed: list[MixedToken]
    forks: list[int] = field(default_factory=list)
