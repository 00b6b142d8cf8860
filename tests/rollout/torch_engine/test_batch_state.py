"""The torch engine's rows, followed by hand through three rollouts in two slots."""

from dataclasses import dataclass, replace

import pytest
import torch

from ngrpo.exploration.base import Exploration, Step
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.rollout.torch_engine.batch_state import BatchState
from ngrpo.types.records import Record
from ngrpo.types.rollouts import Mixture, Prefix, Request, Sampling, StopReason

STOP, END = 9, 8
SAMPLING = Sampling(temperature=1.0, max_new_tokens=3, stop_ids=(STOP,))
FIRST, SECOND = Request((1, 2), key=11), Request((3,), key=22)


def rows(capacity: int = 2) -> BatchState:
    return BatchState(
        capacity, NeighborMixing(k=2), SAMPLING, torch.tensor([END]), like=torch.zeros(1, 4), all_explore=False
    )


def record(made: BatchState, at: slice, tokens: list[int], mixed: list[bool]) -> None:
    """Each row's log-prob is minus its token; its mixture 0.75 of the token and 0.25 of the next id."""
    token = torch.tensor(tokens)
    weights = torch.tensor([[0.75, 0.25]]).expand(len(tokens), 2)
    step = Step(token, torch.tensor(mixed), torch.stack((token, token + 1), dim=1), weights)
    made.record(at, step, -token.float(), token[:, None].expand(-1, 4).float())


def test_a_rollout_is_what_was_recorded():
    made = rows()
    at = made.admit([0, 1], [FIRST, SECOND])
    assert (at, made.active) == (slice(0, 2), 2)
    record(made, at, [5, 6], [True, False])
    assert made.last_positions(made.active).tolist() == [2, 1]
    assert made.inputs[:, 0].tolist() == [5.0, 6.0]
    assert made.look() == ([], 3, 2)
    record(made, at, [4, STOP], [False, False])
    assert made.look() == ([1], 4, 1)
    record(made, slice(0, 1), [7], [True])
    assert made.last_positions(made.active).tolist() == [4, 2]
    assert made.look() == ([0, 1], 0, 0)

    first, second = made.take([0, 1], [FIRST, SECOND])
    assert first.prompt_ids.tolist() == [1, 2]
    assert first.response_ids.tolist() == [5, 4, 7]
    assert first.log_probs.tolist() == [-5.0, -4.0, -7.0]
    assert first.mixture.positions.tolist() == [2, 4]
    assert first.mixture.record.ids.tolist() == [[5, 6], [7, 8]]
    assert first.mixture.record.weights.tolist() == [[0.75, 0.25]] * 2
    assert first.mixture.record.ids.dtype == torch.int32
    assert first.stop_reason is StopReason.LENGTH
    assert second.response_ids.tolist() == [6, STOP]
    assert second.mixture.record.ids.shape == (0, 2)
    assert second.stop_reason is StopReason.STOP


def test_a_row_starts_with_its_prefix():
    """In a row that another rollout has left; its second token was mixed."""
    made = rows(capacity=2)
    at = made.admit([0, 1], [SECOND, SECOND])
    for token in (6, 5, 4):
        record(made, at, [token, token], [True, True])
    made.drop([0, 1])
    mixture = Mixture(torch.tensor([3]), Record(torch.tensor([[1, 2]]), torch.tensor([[0.5, 0.5]])))
    given = replace(FIRST, prefix=Prefix((END, 7), mixture))
    at = made.admit([0, 1], [given, SECOND])
    assert (made.emitted[:2].tolist(), made.ended[:2].tolist()) == ([2, 0], [True, False])
    assert made.last_positions(made.active).tolist() == [3, 0]
    record(made, at, [5, 6], [False, False])
    assert made.look() == ([0], 2, 2)
    (rollout,) = made.take([0], [given])
    assert (rollout.response_ids.tolist(), rollout.prefix_length) == ([END, 7, 5], 2)
    assert rollout.log_probs.tolist() == [0.0, 0.0, -5.0]
    assert rollout.mixture.positions.tolist() == [3]
    assert rollout.mixture.record.ids.tolist() == [[1, 2]]


def test_a_stop_token_in_the_last_place_is_a_stop():
    made = rows(capacity=1)
    at = made.admit([0], [FIRST])
    for token in (5, 6, STOP):
        record(made, at, [token], [False])
    assert made.take([0], [FIRST])[0].stop_reason is StopReason.STOP


def test_an_end_token_is_remembered_until_the_row_is_given_away():
    made = rows(capacity=1)
    at = made.admit([0], [FIRST])
    seen = []
    for token in (5, END, 6):
        record(made, at, [token], [False])
        seen.append(bool(made.ended[0]))
    assert seen == [False, True, True]
    made.drop([0])
    made.admit([1], [SECOND])
    assert (bool(made.ended[0]), int(made.emitted[0]), int(made.keys[0])) == (False, 0, 22)


@pytest.mark.parametrize("done", [[1, 0, 0, 0, 0], [0, 0, 0, 0, 1], [1, 0, 1, 1, 0], [0, 1, 0, 1, 0], [1] * 5, [0] * 5])
def test_survivors_keep_their_own_state_and_the_moves_are_told(done: list[int]):
    """A cache that follows the moves holds each survivor's entry in the survivor's row."""
    made = rows(capacity=5)
    requests = [Request((1,) * (i + 1), key=100 + i, explore=i % 2 == 0) for i in range(5)]
    record(made, made.admit(list(range(5)), requests), [10, 11, 12, 13, 14], [True, False, True, False, True])
    cache = torch.arange(5)
    source, target = made.drop([row for row, gone in enumerate(done) if gone])
    cache[target] = cache[source]
    survivors = [i for i in range(5) if not done[i]]
    held = made.request[: made.active].tolist()
    assert sorted(held) == survivors
    assert cache[: made.active].tolist() == held
    assert made.keys[: made.active].tolist() == [100 + i for i in held]
    assert made.explore[: made.active].tolist() == [i % 2 == 0 for i in held]
    assert made.last_positions(made.active).tolist() == [i + 1 for i in held]
    assert made.inputs[: made.active, 0].tolist() == [10 + i for i in held]
    for row, number in enumerate(held):
        rollout = made.take([row], [requests[number]])[0]
        assert rollout.response_ids.tolist() == [10 + number]
        assert rollout.mixture.record.ids.tolist() == ([[10 + number, 11 + number]] if number % 2 == 0 else [])


def test_a_new_rollout_takes_nothing_from_the_row_before():
    made = rows(capacity=1)
    at = made.admit([0], [FIRST])
    for token in (5, 6, 7):
        record(made, at, [token], [True])
    made.drop([0])
    record(made, made.admit([1], [SECOND]), [STOP], [False])
    rollout = made.take([0], [SECOND])[0]
    assert rollout.response_ids.tolist() == [STOP]
    assert len(rollout.mixture.positions) == 0
    assert int(made.request[0]) == 1


def test_further_channels_and_the_carried_count_follow_their_row():
    """Each row's vector, noise and count are its token's."""
    made = BatchState(3, Everything(), SAMPLING, torch.tensor([END]), like=torch.zeros(1, 4), all_explore=True)
    requests = [Request((1,), key=100 + i) for i in range(3)]
    at = made.admit([0, 1, 2], requests)
    assert made.state.tolist() == [0, 0, 0]
    token = torch.tensor([10, 11, 12])
    rows_of = token[:, None].float()
    step = Step(
        token, torch.ones(3, dtype=torch.bool), token[:, None], rows_of, 2 * rows_of, rows_of.expand(3, 4),
        token.float() / 100, token.int(),
    )  # fmt: skip
    made.record(at, step, -token.float(), rows_of.expand(3, 4))
    made.drop([0])
    assert made.state[:2].tolist() == [12, 11]
    record = made.take([0], [requests[2]])[0].mixture.record
    assert record.scores.tolist() == [[24.0]]
    assert record.vector.tolist() == [[12.0] * 4]
    assert record.noise.tolist() == pytest.approx([0.12])
    made.admit([3], requests[:1])
    assert made.state.tolist() == [12, 11, 0]


@dataclass(frozen=True)
class Everything(Exploration):
    """Fills every channel."""

    width = 1
    scored = True
    dense = True
    noisy = True
    stateful = True

    def step(self, logits, ctx):
        raise NotImplementedError
