"""Which groups are kept, what takes the place of the others, and how ranks stay together."""

import json
from dataclasses import dataclass, field
from itertools import count, islice
from threading import Barrier, Thread

import pytest
import torch
from made_rollouts import experience, rollout, score
from places import ROOT

from ngrpo.errors import SettingError
from ngrpo.rollout.dynamic_sampling import (
    DynamicSampling,
    Selection,
    every_group,
    mixed_outcomes,
    not_all_correct,
    own_share,
    select,
)
from ngrpo.types.experience import Experience
from ngrpo.types.problems import Problem, Prompt
from ngrpo.types.scores import Verdict

GOLDEN = json.loads((ROOT / "tests/vectors.json").read_text())["dapo_dynamic_sampling"]
RIGHT, WRONG, UNSCORED = score(Verdict.CORRECT), score(Verdict.WRONG), score(Verdict.UNPARSABLE_REFERENCE)


def groups(solved: list[int], size: int) -> Experience:
    scores = [RIGHT if sample < right else WRONG for right in solved for sample in range(size)]
    return experience([rollout([1], [2])] * len(scores), scores, size)


def test_golden_vector():
    made = groups(GOLDEN["inputs"]["correct_counts_of_8"], 8)
    keep, released = GOLDEN["outputs"].values()
    assert mixed_outcomes(made).tolist() == keep
    assert not_all_correct(made).tolist() == released
    assert every_group(made).tolist() == [True] * 5


def test_unscored_answers_are_neither_right_nor_wrong():
    scores = [RIGHT, RIGHT, UNSCORED, RIGHT, WRONG, UNSCORED, UNSCORED, UNSCORED, UNSCORED, WRONG, WRONG, UNSCORED]
    made = experience([rollout([1], [2])] * 12, scores, 3)
    assert mixed_outcomes(made).tolist() == [False, True, False, False]
    assert not_all_correct(made).tolist() == [False, True, False, True]


def solved(key: int, size: int = 4) -> int:
    """How many of a problem's answers are right: 0, 1 ... size, in a fixed disorder."""
    return key * 7 % (size + 1)


@dataclass
class Rank:
    """One rank's view of a run: its rollouts, whose outcome depends on the problem alone, and the common stream."""

    stream: count = field(default_factory=count)
    rounds: list[list[int]] = field(default_factory=list)
    collectives: int = 0

    def draw(self, number: int) -> list[Prompt]:
        return [Prompt(Problem(key, "", ""), (1,)) for key in islice(self.stream, number)]

    def roll_out(self, prompts: list[Prompt]) -> Experience | None:
        self.collectives += 1
        if not prompts:
            return None
        self.rounds.append([prompt.problem.key for prompt in prompts])
        made = groups([solved(prompt.problem.key) for prompt in prompts], 4)
        asked = [prompt.problem.key for prompt in prompts for _ in range(4)]
        return Experience(prompts, made.rollouts, asked, made.texts, made.scores, 1.0, 0.5)


def run(ranks: int, batch: int, sampling: DynamicSampling) -> tuple[list[Selection], list[Rank]]:
    """Selects on every rank at once, each in its thread; the numbers of missing groups are exchanged."""
    views, missing, barrier = [Rank() for _ in range(ranks)], [0] * ranks, Barrier(ranks, timeout=10)
    selected: list[Selection | None] = [None] * ranks

    def work(rank: int) -> None:
        def share(own: int) -> list[Prompt] | None:
            missing[rank] = own
            barrier.wait()
            seen = list(missing)
            barrier.wait()
            return own_share(seen, rank, views[rank].draw)

        size = batch // ranks
        prompts = views[rank].draw(batch)[rank * size : (rank + 1) * size]
        selected[rank] = select(prompts, sampling, views[rank].roll_out, share)

    threads = [Thread(target=work, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(s is not None for s in selected)
    return selected, views  # type: ignore[return-value]


def keys(selected: list[Selection]) -> list[int]:
    return [prompt.problem.key for s in selected for prompt in s.experience.prompts]


def test_dead_groups_are_replaced_by_the_next_prompts_of_the_stream():
    (selected,), (rank,) = run(1, 6, DynamicSampling(mixed_outcomes, max_refills=5))
    assert [solved(key) for key in range(6)] == [0, 2, 4, 1, 3, 0]
    # 0, 2 and 5 are dead; of 6, 7 and 8 the second, which takes the third one's place.
    assert rank.rounds == [[0, 1, 2, 3, 4, 5], [6, 7, 8], [9]]
    assert keys([selected]) == [6, 1, 8, 3, 4, 9]
    assert (selected.generated, selected.kept, selected.refills) == (10, 6, 2)
    assert selected.correct == sum(solved(key) for key in range(10))
    assert (selected.experience.generate_s, selected.experience.reward_s) == (3.0, 1.5)
    assert selected.experience.tokens == 10 * 4


def test_what_the_refills_do_not_fill_stays_as_it_was():
    (selected,), (rank,) = run(1, 6, DynamicSampling(mixed_outcomes, max_refills=1))
    assert keys([selected]) == [6, 1, 8, 3, 4, 5]
    assert (selected.generated, selected.kept, selected.refills) == (9, 5, 1)
    (selected,), (rank,) = run(1, 6, DynamicSampling(lambda made: made.correct.all(-1) & False, max_refills=3))
    assert keys([selected]) == list(range(6))
    assert (selected.generated, selected.kept, selected.refills) == (24, 0, 3)
    assert next(rank.stream) == 24


@pytest.mark.parametrize("sampling", [DynamicSampling(every_group, 4), DynamicSampling(mixed_outcomes, 0)])
def test_without_refills_the_batch_stays_as_it_is(sampling: DynamicSampling):
    (selected,), (rank,) = run(1, 6, sampling)
    assert keys([selected]) == list(range(6))
    assert rank.rounds == [[0, 1, 2, 3, 4, 5]]
    assert (selected.refills, next(rank.stream)) == (0, 6)


@pytest.mark.parametrize("ranks", [2, 3, 6])
@pytest.mark.parametrize("batch", [6, 12, 30])
def test_the_same_groups_are_kept_on_any_number_of_ranks(ranks: int, batch: int):
    sampling = DynamicSampling(mixed_outcomes, max_refills=20)
    (alone,), (one,) = run(1, batch, sampling)
    selected, views = run(ranks, batch, sampling)
    assert sorted(keys(selected)) == sorted(keys([alone]))
    assert [len(s.experience.prompts) for s in selected] == [batch // ranks] * ranks
    assert sum(s.generated for s in selected) == alone.generated
    assert {s.refills for s in selected} == {alone.refills}
    assert len({next(view.stream) for view in [one, *views]}) == 1  # the position is the same everywhere


def test_a_rank_that_misses_nothing_goes_through_the_rounds_with_the_others():
    def from_three(made: Experience) -> torch.Tensor:
        return torch.tensor([prompt.problem.key >= 3 for prompt in made.prompts])

    selected, views = run(2, 6, DynamicSampling(from_three, max_refills=4))
    assert keys(selected) == [6, 7, 8, 3, 4, 5]
    assert views[0].rounds == [[0, 1, 2], [6, 7, 8]]
    assert views[1].rounds == [[3, 4, 5]]
    assert [view.collectives for view in views] == [2, 2]
    assert [s.refills for s in selected] == [1, 1]
    assert [next(view.stream) for view in views] == [9, 9]


def test_a_negative_number_of_refills_is_refused():
    with pytest.raises(SettingError, match=r"selection\.max_refills=-1"):
        DynamicSampling(every_group, -1)
