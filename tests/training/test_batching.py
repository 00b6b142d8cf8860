"""Partitions of sequences into minibatches and microbatches."""

import random
from itertools import combinations, pairwise

import pytest

from ngrpo.training.batching import SequencePrompt, balanced, contiguous, in_runs, microbatches


def alone(needed: int) -> int:
    """One rank: what it needs is what is made."""
    return needed


def cases() -> list[tuple[list[int], int]]:
    pick = random.Random(0)
    made = [([pick.randint(1, 300) for _ in range(pick.randint(1, 40))], pick.randint(50, 1000)) for _ in range(200)]
    return [*made, ([5], 10), ([500], 10), ([10, 10, 10], 10), ([1] * 64, 1000), ([400, 400, 1, 1], 100)]


def tokens(part: list[int], lengths: list[int]) -> int:
    return sum(lengths[i] for i in part)


def test_contiguous_cuts_into_equal_runs() -> None:
    assert [list(run) for run in contiguous(6, 3)] == [[0, 1], [2, 3], [4, 5]]
    assert contiguous(4, 1) == [range(0, 4)]
    assert contiguous(3, 3) == [range(0, 1), range(1, 2), range(2, 3)]


def test_microbatches_are_a_partition_within_the_budget() -> None:
    for lengths, budget in cases():
        parts = microbatches(lengths, lengths, budget, alone)
        assert sorted(i for part in parts for i in part) == list(range(len(lengths)))
        assert all(parts)
        assert all(len(part) == 1 or tokens(part, lengths) <= budget for part in parts)
        assert parts == microbatches(list(lengths), list(lengths), budget, alone)


def test_no_fewer_balanced_parts_would_do() -> None:
    for lengths, budget in cases():
        for fewer in range(1, len(microbatches(lengths, lengths, budget, alone))):
            parts = balanced(lengths, fewer)
            assert any(len(part) > 1 and tokens(part, lengths) > budget for part in parts)


def test_sequences_over_the_budget_stand_alone() -> None:
    assert sorted(microbatches([500, 3, 800, 4], [500, 3, 800, 4], 10, alone), key=len) == [[2], [0], [3, 1]]


def test_the_number_that_ranks_agree_on_is_made() -> None:
    lengths = [30, 10, 20, 40, 5, 5, 60, 30]
    asked: list[int] = []

    def agree(needed: int) -> int:
        asked.append(needed)
        return 7

    parts = microbatches(lengths, lengths, 100, agree)
    assert asked == [len(microbatches(lengths, lengths, 100, alone))] == [2]
    assert len(parts) == 7
    assert all(parts)
    assert sorted(i for part in parts for i in part) == list(range(8))


@pytest.mark.parametrize("lengths", [[0, 0, 0, 5], [0, 0], [7] * 9])
def test_as_many_parts_as_sequences_leave_none_empty(lengths: list[int]) -> None:
    parts = balanced(lengths, len(lengths))
    assert sorted(parts) == [[i] for i in range(len(lengths))]


def test_balance() -> None:
    """Longest first into the emptiest part: the parts differ by at most the longest sequence."""
    for lengths, _ in cases():
        for parts in range(1, len(lengths) + 1):
            sums = [tokens(part, lengths) for part in balanced(lengths, parts)]
            assert max(sums) - min(sums) <= max(lengths)


def test_padding_rows_of_length_zero_fit_anywhere() -> None:
    assert microbatches([0, 0, 0], [0, 0, 0], 10, alone) == [[0, 1, 2]]


def test_costs_decide_the_balance_and_tokens_the_number() -> None:
    """Three sequences of 10 tokens cost as much as one of 30; the budget is of tokens."""
    lengths, costs = [30, 10, 10, 10, 10], [9.0, 3.0, 3.0, 3.0, 1.0]
    assert microbatches(lengths, costs, 40, alone) == [[0, 4], [1, 2, 3]]


def test_the_costliest_microbatch_is_first_on_every_rank() -> None:
    for lengths, budget in cases():
        costs = [n**2 for n in lengths]
        sums = [tokens(part, costs) for part in microbatches(lengths, costs, budget, alone)]
        assert sums == sorted(sums, reverse=True)


def with_prompts() -> list[tuple[list[int], list[SequencePrompt], int]]:
    pick = random.Random(1)
    made = []
    for _ in range(200):
        prompts = [SequencePrompt(number, pick.randint(1, 60)) for number in range(pick.randint(1, 6))]
        of_each = [pick.choice(prompts) for _ in range(pick.randint(1, 40))]
        made.append(([one.tokens + pick.randint(1, 100) for one in of_each], of_each, pick.randint(50, 1000)))
    return made


def computed(parts: list[list[int]], lengths: list[int], prompts: list[SequencePrompt]) -> int:
    """Tokens that are computed: each response, and each prompt once in a microbatch."""
    responses = sum(lengths[i] - prompts[i].tokens for part in parts for i in part)
    return responses + sum(prompt.tokens for part in parts for prompt in {prompts[i] for i in part})


def test_responses_of_a_prompt_are_kept_together() -> None:
    """Two prompts of 10 tokens, three responses of 10 each; balanced by cost, both prompts were in both halves."""
    prompts = [SequencePrompt(number, 10) for number in (0, 0, 0, 1, 1, 1)]
    assert microbatches([20] * 6, [20.0] * 6, 60, alone) == [[0, 2, 4], [1, 3, 5]]
    assert microbatches([20] * 6, [20.0] * 6, 60, alone, prompts) == [[0, 1, 2], [3, 4, 5]]


def test_sharing_is_a_partition_within_the_budget_and_computes_no_more() -> None:
    fewer = 0
    for lengths, prompts, budget in with_prompts():
        parts = microbatches(lengths, lengths, budget, alone, prompts)
        assert sorted(i for part in parts for i in part) == list(range(len(lengths)))
        assert all(len(part) == 1 or tokens(part, lengths) <= budget for part in parts)
        without = microbatches(lengths, lengths, budget, alone)
        assert computed(parts, lengths, prompts) <= computed(without, lengths, prompts)
        fewer += computed(parts, lengths, prompts) < computed(without, lengths, prompts)
        for more in range(len(parts), len(lengths) + 1):
            made = microbatches(lengths, lengths, budget, lambda _, more=more: more, prompts)
            assert len(made) == more
            assert all(made)
            assert all(len(part) == 1 or tokens(part, lengths) <= budget for part in made)
    assert fewer > 80


def test_little_to_save_leaves_the_balance() -> None:
    """A prompt of one token beside responses of a hundred."""
    lengths, prompts = (
        [101, 1001, 101, 1001],
        [SequencePrompt(0, 1), SequencePrompt(0, 1), SequencePrompt(1, 1), SequencePrompt(1, 1)],
    )
    assert microbatches(lengths, lengths, 1200, alone, prompts) == microbatches(lengths, lengths, 1200, alone)


def test_the_longest_run_is_as_short_as_can_be() -> None:
    """Against all ways to cut, for up to eight sequences."""
    pick = random.Random(2)
    for _ in range(100):
        lengths = [pick.randint(1, 30) for _ in range(pick.randint(1, 8))]
        order = pick.sample(range(len(lengths)), len(lengths))
        for parts in range(1, len(lengths) + 1):
            made = in_runs(lengths, order, parts)
            assert [i for part in made for i in part] == order
            assert len(made) == parts
            assert all(made)
            cuts = combinations(range(1, len(lengths)), parts - 1)
            ways = ([order[a:b] for a, b in pairwise((0, *cut, len(lengths)))] for cut in cuts)
            assert max(tokens(part, lengths) for part in made) == min(
                max(tokens(part, lengths) for part in way) for way in ways
            )
