"""Partitions of sequences into minibatches and microbatches."""

import random

import pytest

from ngrpo.training.batching import balanced, contiguous, microbatches


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
