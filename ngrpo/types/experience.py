"""The rollout batch of a rank: prompts, rollouts, scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ngrpo.types.paths import distinct_tokens
from ngrpo.types.problems import PassRate, Prompt
from ngrpo.types.rollouts import Rollout, StopReason
from ngrpo.types.scores import Score, Verdict


@dataclass(frozen=True)
class Experience:
    """P prompts with G rollouts each, group by group.

    Attributes:
        prompts: P prompts.
        rollouts: P * G rollouts; those of prompt p are [p * G, (p + 1) * G).
        keys: key of the problem that each rollout answers; P * G. Advantages are made from groups of equal keys.
        texts: the responses as text, special tokens kept; P * G.
        scores: P * G.
        generate_s: wall-clock seconds spent generating.
        reward_s: wall-clock seconds spent scoring.
        terms: the weighted values of the reward terms beside correctness, by name; float64 [P * G] each.
        discarded_tokens: response tokens that were generated for the batch and then dropped, with their group or as a
            branch of a tree that was given up.
        finished: training iterations that were finished when the rollouts were made (`StepContext.progress`); of a
            batch with replaced groups, those of its first rollouts.
    """

    prompts: list[Prompt]
    rollouts: list[Rollout]
    keys: list[int]
    texts: list[str]
    scores: list[Score]
    generate_s: float
    reward_s: float
    terms: Mapping[str, Tensor] = field(default_factory=dict)
    discarded_tokens: int = 0
    finished: int = 0

    @property
    def group_size(self) -> int:
        """G."""
        return len(self.rollouts) // len(self.prompts)

    @property
    def rewards(self) -> Tensor:
        """Correctness and all terms added up, in float64, and rounded once; float32 [P, G].

        So that two ways to the same sum, such as 0.1 + 0.2 and 0.3, do not differ by what rounding adds to them.
        NaN masks a sample: where the reference could not be used, where a term says so, where it is `infinite`.
        """
        return self._total.float().masked_fill(self.infinite, torch.nan).view(len(self.prompts), -1)

    @property
    def infinite(self) -> Tensor:
        """Whether each reward, or a summand of it, is infinite, which would make the loss non-finite; bool [P * G].

        Finite summands may add up to more than float32 holds.
        """
        return torch.stack([self._total.float(), self.correctness, *self.terms.values()]).isinf().any(0)

    @property
    def _total(self) -> Tensor:
        return sum(self.terms.values(), start=self.correctness)

    @property
    def correctness(self) -> Tensor:
        """The verifier's rewards, NaN where the reference could not be used; float64 [P * G]."""
        return torch.tensor([s.reward for s in self.scores], dtype=torch.float64)

    @property
    def correct(self) -> Tensor:
        """Whether each answer is right; bool [P, G]."""
        return torch.tensor([s.correct for s in self.scores]).view(len(self.prompts), -1)

    @property
    def pass_rates(self) -> list[PassRate]:
        """The share of right answers among each prompt's scored ones; prompts without a scored one are skipped."""
        scored = ~self.correctness.isnan().view_as(self.correct)
        counts = zip(self.prompts, self.correct.sum(-1).tolist(), scored.sum(-1).tolist(), strict=True)
        return [PassRate(prompt.problem.key, right / total) for prompt, right, total in counts if total]

    @property
    def unparsable_references(self) -> int:
        """The number of prompts whose reference no answer could be compared with."""
        unparsable = [score.status is Verdict.UNPARSABLE_REFERENCE for score in self.scores]
        size = self.group_size
        return sum(any(unparsable[start : start + size]) for start in range(0, len(unparsable), size))

    @property
    def outcomes(self) -> Tensor:
        """A number for each final answer, equal where the texts are (no answer is one of them); int64 [P * G]."""
        numbers: dict[str | None, int] = {}
        return torch.tensor([numbers.setdefault(s.answer, len(numbers)) for s in self.scores])

    @property
    def tokens(self) -> int:
        """Response tokens that were generated, discarded ones included and given ones not.

        Those that several responses have in common were generated once.
        """
        paths = [rollout.path for rollout in self.rollouts]
        starts = [rollout.prefix_length for rollout in self.rollouts]
        return distinct_tokens(paths, starts, [r.length for r in self.rollouts]) + self.discarded_tokens

    @property
    def truncated(self) -> Tensor:
        """Whether each rollout ran into the length limit; bool [P * G]."""
        return torch.tensor([r.stop_reason is StopReason.LENGTH for r in self.rollouts])

    def groups(self) -> list["Experience"]:
        """Returns each prompt's rollouts as an experience of its own, without terms; the seconds stay behind."""
        size = self.group_size
        spans = [slice(start, start + size) for start in range(0, len(self.rollouts), size)]
        return [
            Experience([prompt], self.rollouts[at], self.keys[at], self.texts[at], self.scores[at], 0.0, 0.0)
            for prompt, at in zip(self.prompts, spans, strict=True)
        ]


def join_groups(groups: Sequence[Experience], made: Sequence[Experience]) -> Experience:
    """Returns one experience of chosen groups.

    Args:
        groups: from `Experience.groups`.
        made: all that was generated to choose them from; gives seconds and tokens.
    """
    batch = Experience(
        prompts=[prompt for group in groups for prompt in group.prompts],
        rollouts=[rollout for group in groups for rollout in group.rollouts],
        keys=[key for group in groups for key in group.keys],
        texts=[text for group in groups for text in group.texts],
        scores=[score for group in groups for score in group.scores],
        generate_s=sum(part.generate_s for part in made),
        reward_s=sum(part.reward_s for part in made),
        finished=made[0].finished,
    )
    return replace(batch, discarded_tokens=sum(part.tokens for part in made) - batch.tokens)
