"""Packed slots and rows, written out for sequences small enough to count."""

from dataclasses import replace

import pytest
import torch
from made_rollouts import rollout

from ngrpo.modeling.packing import PackedBatch, pack
from ngrpo.types.rollouts import Rollout

FIRST = rollout([10, 11, 12], [20, 21, 22], {3: {30: 0.75, 31: 0.25}, 5: {32: 0.5, 33: 0.5}}, key=7)
ONE_TOKEN = rollout([13, 14], [23], {2: {34: 0.125, 35: 0.875}}, key=9)
PLAIN = rollout([15], [24, 25])


def as_lists(batch: PackedBatch) -> dict[str, list]:
    listed = {
        n: value.tolist() if isinstance(value, torch.Tensor) else value
        for n, value in vars(batch).items()
        if n != "record"
    }
    return listed | {"ids": batch.record.ids.tolist(), "weights": batch.record.weights.tolist()}


def test_two_sequences_by_hand():
    assert as_lists(pack([FIRST, ONE_TOKEN])) == {
        "tokens": [10, 11, 12, 20, 21, 22, 13, 14, 23],
        "positions": [0, 1, 2, 3, 4, 5, 0, 1, 2],
        "keys": [7, 7, 7, 7, 7, 7, 9, 9, 9],
        "lengths": [6, 3],
        "response_lengths": [3, 1],
        "scored_rows": [2, 3, 4, 7],
        "response_slots": [3, 4, 5, 8],
        "state_rows": [2, 3, 4, 5, 7, 8],
        "mixed_slots": [3, 5, 8],
        "ids": [[30, 31], [32, 33], [34, 35]],
        "weights": [[0.75, 0.25], [0.5, 0.5], [0.125, 0.875]],
        "support": None,
        "partly_whole": False,
        "shared": None,
    }


def test_steps_are_the_recorded_decisions():
    step = pack([FIRST, PLAIN, ONE_TOKEN]).steps()
    assert step.token.tolist() == [20, 21, 22, 24, 25, 23]
    assert step.mixed.tolist() == [True, False, True, False, False, True]
    assert step.ids[step.mixed].tolist() == [[30, 31], [32, 33], [34, 35]]
    assert step.weights[step.mixed].tolist() == [[0.75, 0.25], [0.5, 0.5], [0.125, 0.875]]


@pytest.mark.parametrize("rollouts", [[FIRST], [ONE_TOKEN, FIRST], [PLAIN, FIRST, ONE_TOKEN, PLAIN]])
def test_every_slot_is_that_of_its_own_sequence(rollouts: list[Rollout]):
    """Walks the sequences one by one, counting slots."""
    batch, slot, row, mixed = pack(rollouts), 0, 0, 0
    for r in rollouts:
        for position, token in enumerate([*r.prompt_ids.tolist(), *r.response_ids.tolist()]):
            assert (batch.tokens[slot], batch.positions[slot]) == (token, position)
            if position >= len(r.prompt_ids):
                assert (batch.response_slots[row], batch.scored_rows[row]) == (slot, slot - 1)
                row += 1
            if position in r.mixture.positions:
                assert batch.mixed_slots[mixed] == slot
                mixed += 1
            slot += 1
    assert (slot, row, mixed) == (len(batch.tokens), len(batch.response_slots), len(batch.mixed_slots))


def test_strategies_that_never_mix_have_records_of_width_zero():
    batch = pack([rollout([1], [2, 3], width=0), rollout([1, 4], [5], width=0)])
    assert batch.record.ids.shape == batch.record.weights.shape == (0, 0)
    assert batch.steps().ids.shape == (3, 0)
    assert not batch.steps().mixed.any()


def test_further_channels_go_to_their_own_response_tokens():
    """FIRST has records at its first and third token, PLAIN none, ONE_TOKEN one."""
    numbers = iter(range(1, 10))

    def with_channels(r: Rollout) -> Rollout:
        given = torch.tensor([float(next(numbers)) for _ in r.mixture.positions]).view(-1)
        record = r.mixture.record._replace(vector=given[:, None].expand(-1, 4).bfloat16(), noise=given / 10)
        return replace(r, mixture=replace(r.mixture, record=record))

    batch = pack([with_channels(r) for r in (FIRST, PLAIN, ONE_TOKEN)])
    step, mixed = batch.steps(), batch.mixed_steps()
    assert step.vector[:, 0].tolist() == [1, 0, 2, 0, 0, 3]
    assert step.vector.dtype == torch.bfloat16
    assert step.noise.tolist() == pytest.approx([0.1, 0.0, 0.2, 0.0, 0.0, 0.3])
    assert step.scores is step.state is None
    assert mixed.token.tolist() == [20, 22, 23]
    assert mixed.mixed.tolist() == [True] * 3
    assert mixed.vector[:, 3].tolist() == [1, 2, 3]
    where = batch.context(batch.mixed_slots, torch.zeros(0, 4))
    assert where.keys.tolist() == [7, 7, 9]
    assert where.positions.tolist() == [3, 5, 2]


def test_a_plain_rollout_has_the_same_text_and_no_record():
    plain = FIRST.without_mixtures()
    assert plain.response_ids is FIRST.response_ids
    assert pack([plain]).record.ids.shape == (0, 2)
    assert not pack([plain]).steps().mixed.any()
