"""Rollouts and experiences written out by hand."""

import math
from collections.abc import Mapping, Sequence

import torch

from ngrpo.types.experience import Experience
from ngrpo.types.problems import Problem, Prompt
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Rollout, StopReason
from ngrpo.types.scores import Score, Verdict


def rollout(
    prompt: Sequence[int],
    response: Sequence[int],
    mixed: Mapping[int, Mapping[int, float]] | None = None,
    width: int = 2,
    stop: StopReason = StopReason.STOP,
    key: int = 0,
) -> Rollout:
    """A rollout with the mixtures ``mixed``: absolute position -> {token id: weight}."""
    records = mixed or {}
    shape = (len(records), width)
    return Rollout(
        key=key,
        prompt_ids=torch.tensor(prompt),
        response_ids=torch.tensor(response),
        log_probs=torch.zeros(len(response)),
        mixture=Mixture(
            positions=torch.tensor(list(records), dtype=torch.int64),
            record=Record(
                ids=torch.tensor([list(r) for r in records.values()], dtype=torch.int32).view(shape),
                weights=torch.tensor([list(r.values()) for r in records.values()]).view(shape),
            ),
        ),
        stop_reason=stop,
    )


def same_distributions(a: Rollout, b: Rollout, atol: float = 1e-5) -> bool:
    """Whether the same was recorded of what two responses were drawn from; also nothing."""
    if a.distributions is None or b.distributions is None:
        return a.distributions is b.distributions
    (entropy, ids, log_probs), (other_entropy, other_ids, other_log_probs) = a.distributions, b.distributions
    close = torch.allclose(entropy, other_entropy, atol=atol) and torch.allclose(log_probs, other_log_probs, atol=atol)
    return close and torch.equal(ids, other_ids)


def score(verdict: Verdict, answer: str | None = None) -> Score:
    """A score as the mathematics reward gives it."""
    rewards = {Verdict.CORRECT: 1.0, Verdict.UNPARSABLE_REFERENCE: math.nan}
    return Score(rewards.get(verdict, 0.0), verdict is Verdict.CORRECT, answer, verdict)


def experience(rollouts: list[Rollout], scores: list[Score], group_size: int) -> Experience:
    """An experience whose prompt number p asks "question p", answer p; 2 seconds of generation, 0.5 of scoring."""
    prompts = [Prompt(Problem(p, f"question {p}", str(p)), (1,)) for p in range(len(rollouts) // group_size)]
    texts = [f"text {i}" for i in range(len(rollouts))]
    keys = [p for p in range(len(prompts)) for _ in range(group_size)]
    return Experience(prompts, rollouts, keys, texts, scores, generate_s=2.0, reward_s=0.5)
