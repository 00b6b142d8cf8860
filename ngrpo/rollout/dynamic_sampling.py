"""Which groups are worth training on, and further prompts in place of those that are not (dynamic sampling)."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.types.experience import Experience, joined
from ngrpo.types.problems import Prompt


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


@dataclass(frozen=True)
class DynamicSampling:
    """How a batch is filled with groups worth training on (``selection`` in the configuration).

    Attributes:
        keep: says of each group whether it is; see the functions of this module.
        max_refills: rounds of further prompts, at most; 0 trains on the first ones whatever ``keep`` says.
    """

    keep: Callable[[Experience], Tensor]
    max_refills: int = 0

    def __post_init__(self) -> None:
        if self.max_refills < 0:
            raise SettingError(f"selection.max_refills={self.max_refills} is negative; 0 never draws further prompts.")


@dataclass(frozen=True)
class Selection:
    """A rank's batch and what it took to fill it.

    Attributes:
        experience: as many groups as the first round had.
        generated: groups generated on this rank, all rounds together.
        kept: groups of the batch that are worth training on.
        correct: right answers among everything generated.
        refills: rounds of further prompts, the same on every rank.
    """

    experience: Experience
    generated: int
    kept: int
    correct: int
    refills: int


def select(
    prompts: list[Prompt],
    sampling: DynamicSampling,
    roll_out: Callable[[list[Prompt]], Experience | None],
    share: Callable[[int], list[Prompt] | None],
) -> Selection:
    """Makes a batch, and puts further groups in the places of those that are not worth training on.

    Groups are whole, and never carried into the next iteration, whose policy is another. Each round generates exactly
    as many groups as are missing on all ranks, so that none is left over and the same groups are kept on any number
    of ranks. What is still missing after ``max_refills`` rounds stays as it was: the batch is always full, and every
    rank goes through the same number of rounds.

    Args:
        prompts: this rank's share of the batch.
        sampling: what is kept, and how many rounds are made.
        roll_out: makes the groups of some prompts, None of none (a collective, in which the ranks tell of faults).
        share: takes the number of groups that this rank misses and returns as many prompts, or None if no rank misses
            any (a collective; called equally often on all ranks).
    """
    first = roll_out(prompts)
    assert first is not None
    made = [first]
    groups, worth = made[0].groups(), sampling.keep(made[0]).tolist()
    refills = 0
    while refills < sampling.max_refills:
        missing = [place for place, good in enumerate(worth) if not good]
        further = share(len(missing))
        if further is None:
            break
        refills += 1
        if (more := roll_out(further)) is not None:
            made.append(more)
            fresh = zip(made[-1].groups(), sampling.keep(made[-1]).tolist(), strict=True)
            for place, group in zip(missing, (group for group, good in fresh if good), strict=False):
                groups[place], worth[place] = group, True
    return Selection(
        experience=joined(groups, made),
        generated=sum(len(part.prompts) for part in made),
        kept=sum(worth),
        correct=sum(int(part.correct.sum()) for part in made),
        refills=refills,
    )


def own_share(missing: list[int], rank: int, draw: Callable[[int], list[Prompt]]) -> list[Prompt] | None:
    """Draws what all ranks miss and returns the prompts of one.

    Args:
        missing: groups missing on each rank.
        rank: whose prompts are wanted.
        draw: takes prompts from the stream; called with the same number on every rank, and not at all if nothing is
            missing anywhere.

    Returns:
        ``missing[rank]`` prompts, or None if nothing is missing anywhere.
    """
    if not any(missing):
        return None
    start = sum(missing[:rank])
    return draw(sum(missing))[start : start + missing[rank]]
