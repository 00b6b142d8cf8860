"""Dynamic sampling: groups without a training signal are dropped, and replaced by groups of further prompts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.types.experience import Experience, join_groups
from ngrpo.types.problems import PassRate, Prompt


def every_group(experience: Experience) -> Tensor:
    """Keeps everything; bool [P]."""
    return experience.correct.any(-1) | True


def mixed_outcomes(experience: Experience) -> Tensor:
    """Keeps groups with right and wrong answers, ``0 < #correct < #scored`` (DAPO, arXiv 2503.14476); bool [P].

    Accuracy decides, not the reward: an overlong punishment makes rewards differ where outcomes do not.
    """
    return experience.correct.any(-1) & not_all_correct(experience)


def not_all_correct(experience: Experience) -> Tensor:
    """Drops groups that are solved throughout, ``#correct < #scored`` (NGRPO's released script); bool [P].

    A group of which no answer could be scored is dropped too: it has nothing to teach.
    """
    scored = (~experience.correctness.isnan()).view_as(experience.correct).sum(-1)
    return experience.correct.sum(-1) < scored


_BY_GROUP = (every_group, mixed_outcomes, not_all_correct)
"""Functions whose answer for a group does not depend on the others."""


@dataclass(frozen=True)
class DynamicSampling:
    """The settings of dynamic sampling (``selection`` in the configuration).

    Attributes:
        keep: tells which groups of an experience are worth training on; see the functions of this module.
        max_refills: rounds of further prompts, at most; 0 trains on the first ones whatever ``keep`` says.
    """

    keep: Callable[[Experience], Tensor]
    max_refills: int = 0

    def __post_init__(self) -> None:
        if self.max_refills < 0:
            raise SettingError(f"selection.max_refills={self.max_refills} is negative; 0 never draws further prompts.")

    @property
    def by_group(self) -> bool:
        """Whether ``keep`` is known to judge each group by itself."""
        return self.keep in _BY_GROUP


class GroupSelection:
    """A rank's batch, whose groups that are not worth training on are replaced in rounds.

    Groups are whole, and never kept for the next iteration, whose policy is another. A round brings a group for each
    that is missing, which takes its place or is dropped too: so the same groups are at the same places, and in the same
    optimiser steps, on any number of ranks. A group for which no round brings a replacement stays: the batch is always
    full.

    Args:
        first: rollouts of the batch's own prompts.
        keep: see `DynamicSampling`.

    Attributes:
        refills: rounds so far, the same on every rank.
        generated: what was generated so far, dropped groups too; an experience a round that brought this rank some.
    """

    def __init__(self, first: Experience, keep: Callable[[Experience], Tensor]) -> None:
        self.refills = 0
        self.group_size = first.group_size
        self._keep = keep
        self.generated = [first]
        self._groups = first.groups()
        self._kept: list[bool] = keep(first).tolist()

    @property
    def missing(self) -> list[int]:
        """Indices of the groups that are still to be replaced."""
        return [index for index, kept in enumerate(self._kept) if not kept]

    def refill(self, further: Experience | None) -> None:
        """Replaces missing groups by those of ``further`` that are worth training on.

        Args:
            further: a group for each of `missing`; None on a rank that misses none while another does.
        """
        self.refills += 1
        if further is None:
            return
        self.generated.append(further)
        kept = self._keep(further).tolist()
        for index, group, good in zip(self.missing, further.groups(), kept, strict=True):
            if good:
                self._groups[index], self._kept[index] = group, True

    @property
    def experience(self) -> Experience:
        """The batch: as many groups as the first round had."""
        return join_groups(self._groups, self.generated)

    @property
    def pass_rates(self) -> list[PassRate]:
        """Those of all prompts that were generated for, dropped ones included."""
        return [rate for part in self.generated for rate in part.pass_rates]

    @property
    def unparsable_references(self) -> int:
        """Problems, dropped ones included, whose reference no answer could be compared with."""
        return sum(part.unparsable_references for part in self.generated)

    @property
    def groups_generated(self) -> int:
        """Groups that were generated, all rounds together."""
        return sum(len(part.prompts) for part in self.generated)

    @property
    def groups_kept(self) -> int:
        """Groups of the batch that are worth training on."""
        return sum(self._kept)

    @property
    def correct_answers(self) -> int:
        """Right answers among everything that was generated."""
        return sum(int(part.correct.sum()) for part in self.generated)


def certain_prompts(first: int, dropped: Sequence[bool], max_refills: int) -> int:
    """Returns how many prompts rounds generate for at least, whatever becomes of the groups that are still made.

    A round brings as many prompts as are missing, so that it ends at the first prompts and as many more as were dropped
    before it: with more dropped groups, no round ends earlier.

    Args:
        first: prompts of the first round.
        dropped: whether the group of each prompt is known to be dropped, in the order of the prompts.
        max_refills: rounds of further prompts, at most.
    """
    certain = first
    for _ in range(max_refills):
        before, certain = certain, first + sum(dropped[:certain])
        if certain == before:
            break
    return certain


def round_sizes(first: int, dropped: Sequence[bool], max_refills: int) -> list[int]:
    """Returns the prompts of each round; arguments as for `certain_prompts`, with every group decided."""
    ends = [certain_prompts(first, dropped, rounds) for rounds in range(max_refills + 1)]
    sizes = [first, *(after - before for before, after in pairwise(ends))]
    return [size for size in sizes if size]


def rank_share(prompts: Sequence[Prompt], missing: Sequence[Sequence[int]], rank: int) -> list[Prompt]:
    """Returns one rank's share of prompts that were drawn for all, in the order of its missing groups.

    Args:
        prompts: one for each missing group, in the order of the whole batch, whose groups were dealt out one by one.
        missing: indices of the groups that each rank misses, ascending.
        rank: this one.
    """
    places = sorted((index, owner) for owner, indices in enumerate(missing) for index in indices)
    return [prompt for prompt, (_, owner) in zip(prompts, places, strict=True) if owner == rank]
