"""The rollouts of an iteration in the form in which they are stored."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ngrpo.report.run_records import MixedToken, ProblemRate, StoredRollout
from ngrpo.report.token_texts import token_texts
from ngrpo.types.experience import Experience
from ngrpo.types.rollouts import Rollout


@dataclass(frozen=True)
class Subset:
    """The subset of an iteration that is stored.

    Attributes:
        groups: prompts.
        rollouts: responses a prompt.
        tokens: first tokens a response.
    """

    groups: int
    rollouts: int
    tokens: int

    def of(self, experience: Experience) -> list[int]:
        """Returns the indices of the responses that are stored."""
        size = experience.group_size
        return [
            group * size + index
            for group in range(min(self.groups, len(experience.prompts)))
            for index in range(min(self.rollouts, size))
        ]


def problem_rates(experience: Experience) -> list[ProblemRate]:
    """Returns how often each prompt's problem was solved."""
    solved = experience.correct.sum(-1).tolist()
    size = experience.group_size
    return [ProblemRate(experience.keys[p * size], right, size) for p, right in enumerate(solved)]


def stored_rollouts(
    tokenizer: Any,
    experience: Experience,
    advantages: Sequence[float],
    entropies: Mapping[int, list[float]],
    subset: Subset,
) -> list[StoredRollout]:
    """Returns the first responses of the first groups, as text.

    Args:
        tokenizer: a transformers tokenizer.
        experience: P prompts with G rollouts each.
        advantages: of each response; P * G, NaN where it was excluded from the loss.
        entropies: of the first generated tokens of these responses, by the rollout's key.
        subset: what is stored of it.
    """
    size = experience.group_size
    rewards = experience.rewards.flatten().tolist()
    made = []
    for index in subset.of(experience):
        rollout, score = experience.rollouts[index], experience.scores[index]
        problem = experience.prompts[index // size].problem
        made.append(
            StoredRollout(
                group=index // size,
                question=problem.question,
                reference=problem.answer,
                answer=score.answer,
                verdict=str(score.status),
                reward=_finite(rewards[index]),
                advantage=_finite(advantages[index]),
                stop=str(rollout.stop_reason),
                length=rollout.length,
                tokens=token_texts(tokenizer, rollout.response_ids[: subset.tokens].tolist()),
                log_probs=_after_prefix(rollout, rollout.generated_log_probs.tolist())[: subset.tokens],
                entropies=_after_prefix(rollout, entropies.get(rollout.key, []))[: subset.tokens],
                mixed=mixed_tokens(tokenizer, rollout, subset.tokens),
                forks=[] if rollout.path is None else list(rollout.path.starts[1:]),
            )
        )
    return made


def mixed_tokens(tokenizer: Any, rollout: Rollout, tokens: int) -> list[MixedToken]:
    """Returns the mixed positions among the first ``tokens`` of a response."""
    record = rollout.mixture.record
    indices = (rollout.mixture.positions - len(rollout.prompt_ids)).tolist()
    noises = [None] * len(indices) if record.noise is None else record.noise.tolist()
    ids, weights = record.ids.tolist(), record.weights.tolist()
    return [
        MixedToken(index, [tokenizer.decode([number]) for number in ids[m]], weights[m], noises[m])
        for m, index in enumerate(indices)
        if index < tokens
    ]


def _after_prefix(rollout: Rollout, values: list[float]) -> list[float]:
    """Returns what is known of generated tokens by response index: NaN for those that were given; none if none is."""
    return [math.nan] * rollout.prefix_length + values if values else values


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
