"""Responses written out by hand, for the reward terms."""

from collections.abc import Sequence

from made_rollouts import rollout, score

from ngrpo.rewards.terms.base import Responses
from ngrpo.types.problems import Problem
from ngrpo.types.scores import Verdict


def responses(
    answers: Sequence[str | None],
    keys: Sequence[int] | None = None,
    lengths: Sequence[int] | None = None,
    texts: Sequence[str] | None = None,
) -> Responses:
    """One response an answer; by default to one problem, of one token."""
    count = len(answers)
    return Responses(
        problems=[Problem(key, f"question {key}", "7") for key in keys or [0] * count],
        rollouts=[rollout([1], range(length)) for length in lengths or [1] * count],
        texts=texts or [f"text {i}" for i in range(count)],
        scores=[score(Verdict.WRONG if answer else Verdict.NO_ANSWER, answer) for answer in answers],
    )
