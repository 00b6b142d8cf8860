"""Dynamic sampling: which groups are kept, and what replaces the others."""

import json
from dataclasses import replace

import pytest
from made_rollouts import experience, rollout, score
from places import ROOT

from ngrpo.errors import SettingError
from ngrpo.rollout.dynamic_sampling import (
    DynamicSampling,
    GroupSelection,
    every_group,
    mixed_outcomes,
    not_all_correct,
    rank_share,
)
from ngrpo.types.experience import Experience
from ngrpo.types.problems import PassRate, Problem, Prompt
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


def generated(solved: dict[int, int]) -> Experience:
    """Groups of 4 on the problems ``solved``, so many answers of each being right."""
    made = groups(list(solved.values()), 4)
    prompts = [Prompt(Problem(key, "", ""), (1,)) for key in solved]
    keys = [key for key in solved for _ in range(4)]
    return Experience(prompts, made.rollouts, keys, made.texts, made.scores, 1.0, 0.5)


def keys(selected: GroupSelection) -> list[int]:
    return [prompt.problem.key for prompt in selected.experience.prompts]


def test_groups_without_a_signal_are_replaced_each_at_its_place():
    selected = GroupSelection(generated({0: 0, 1: 2, 2: 4, 3: 1, 4: 3, 5: 0}), mixed_outcomes)
    assert selected.missing == [0, 2, 5]
    selected.refill(generated({6: 2, 7: 4, 8: 1}))
    assert selected.missing == [2]
    selected.refill(generated({9: 3}))
    assert selected.missing == []
    assert keys(selected) == [6, 1, 9, 3, 4, 8]
    assert (selected.groups_generated, selected.groups_kept, selected.refills) == (10, 6, 2)
    assert selected.correct_answers == 0 + 2 + 4 + 1 + 3 + 0 + 2 + 4 + 1 + 3
    assert (selected.experience.generate_s, selected.experience.reward_s) == (3.0, 1.5)
    assert selected.experience.tokens == 10 * 4


def test_what_is_not_replaced_stays():
    selected = GroupSelection(generated({0: 0, 1: 2, 2: 4}), mixed_outcomes)
    selected.refill(generated({3: 4, 4: 1}))
    assert keys(selected) == [0, 1, 4]
    assert (selected.groups_generated, selected.groups_kept, selected.refills) == (5, 2, 1)


def test_a_rank_that_misses_nothing_takes_part_in_the_rounds_of_others():
    selected = GroupSelection(generated({0: 1}), mixed_outcomes)
    selected.refill(None)
    assert keys(selected) == [0]
    assert (selected.groups_generated, selected.refills) == (1, 1)


def test_dropped_groups_count_for_pass_rates_and_references():
    first = generated({0: 0, 1: 2})
    selected = GroupSelection(replace(first, scores=[UNSCORED] * 2 + first.scores[2:]), mixed_outcomes)
    selected.refill(generated({2: 1}))
    assert keys(selected) == [2, 1]
    assert selected.pass_rates == [PassRate(0, 0.0), PassRate(1, 0.5), PassRate(2, 0.25)]
    assert selected.unparsable_references == 1


def test_prompts_drawn_for_all_are_shared_in_the_order_of_the_whole_batch():
    drawn = [Prompt(Problem(key, "", ""), (1,)) for key in range(6)]
    missing = [[0, 3], [], [0, 1, 2], [1]]  # of a batch whose groups 0, 4, 8, 12 are the first rank's
    shares = [rank_share(drawn, missing, rank) for rank in range(4)]
    assert [[prompt.problem.key for prompt in share] for share in shares] == [[0, 5], [], [1, 2, 4], [3]]


def test_a_negative_number_of_refills_is_refused():
    with pytest.raises(SettingError, match=r"selection\.max_refills=-1"):
        DynamicSampling(every_group, -1)
