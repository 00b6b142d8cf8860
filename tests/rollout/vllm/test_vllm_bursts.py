"""The pieces of bursts: their length, the rows on the device, and the memory of a session that is used again."""

from dataclasses import replace

import pytest
import torch

from ngrpo.errors import SettingError
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.records.session import Admission, Session, SessionSpec
from ngrpo.rollout.vllm.burst_length import BurstLength
from ngrpo.rollout.vllm.burst_rows import BurstRows, advance, note
from ngrpo.rollout.vllm.engine import VllmEngine

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = pytest.mark.vllm

CPU = torch.device("cpu")
SPEC = SessionSpec(
    strategy=NeighborMixing(rate=0.5, k=2),
    tables={"neighbors": torch.arange(20).view(10, 2)},
    parameters={},
    end_ids=(),
    temperature=0.7,
    max_new_tokens=6,
    slots=3,
)


def test_bursts_are_as_long_as_the_longest_row_needs():
    assert BurstLength(32).steps(100) == 32
    assert BurstLength(32).steps(5) == 5
    assert BurstLength(1).steps(100) == 1


def test_bursts_become_shorter_where_rows_end_often_and_long_again():
    length = BurstLength(32)
    for expected in (16, 8, 4, 2, 1, 1):
        length.observe(made=50, computed=100)
        assert length.steps(100) == expected
    for expected in (2, 4, 8, 16, 32, 32):
        length.observe(made=99, computed=100)
        assert length.steps(100) == expected
    length.observe(made=90, computed=100)
    assert length.steps(100) == 32


def rows(states: list[int], limits: list[int], live: list[bool], padded: int) -> BurstRows:
    made = BurstRows.empty(8, 4, CPU).first(padded)
    made.fill(torch.tensor(states), torch.tensor(states) + 100, torch.tensor(limits), torch.tensor(live))
    return made


def test_rows_advance_until_a_stop_token_or_their_budget_ends_them():
    """Three rows and one that pads: the first stops, the second reaches its budget, the third goes on."""
    batch = rows([5, 6, 7], [20, 12, 20], [True, True, True], padded=4)
    assert batch.addresses.tolist() == [105, 106, 107, -1]
    input_ids, positions = torch.tensor([1, 2, 3, 0], dtype=torch.int32), torch.tensor([9, 9, 9, 0])
    lengths = torch.tensor([10, 10, 10, 0], dtype=torch.int32)
    tokens = torch.tensor([[11, 21, 31, 0], [12, 22, 32, 0], [99, 23, 33, 0]])
    for chosen in tokens:
        note(batch, chosen, lengths, chosen == 12)
        advance(batch, input_ids, positions, lengths)
    assert batch.chosen[:3, :3].tolist() == [[11, 12, 99], [21, 22, 23], [31, 32, 33]]
    assert batch.made.tolist() == [2, 2, 3, 0]
    assert batch.live.tolist() == [False, False, True, False]
    # An ended row repeats the step whose token ended it.
    assert input_ids.tolist() == [11, 21, 33, 0]
    assert positions.tolist() == [10, 10, 12, 0]
    assert lengths.tolist() == [11, 11, 13, 0]


def test_a_row_that_had_ended_before_makes_nothing():
    batch = rows([0, 1], [20, 20], [False, True], padded=2)
    note(batch, torch.tensor([3, 4]), torch.tensor([5, 5]), torch.tensor([False, False]))
    assert batch.made.tolist() == [0, 1]
    assert batch.live.tolist() == [False, True]


def test_a_call_of_the_same_shape_gets_the_memory_of_the_last():
    session = Session(SPEC, torch.zeros(0, 4), CPU, number=1)
    session.assign(Admission(2, 0, key=7, prompt_length=5))
    session.write_assigned()
    session.records.tokens.fill_(3)
    session.records.mixed.fill_(True)
    before, memory = [t.data_ptr() for t in (*session.inputs[:3], *session.records[:3])], session.memory
    following = replace(SPEC, tables={"neighbors": torch.ones(10, 2, dtype=torch.int64)}, progress=torch.tensor(4))
    assert session.renew(following, session.inputs.embedding, 9)
    fresh = Session(following, torch.zeros(0, 4), CPU, number=9)
    assert session.memory == memory != fresh.memory
    assert before == [t.data_ptr() for t in (*session.inputs[:3], *session.records[:3])]
    for own, other in ((session.inputs, fresh.inputs), (session.records, fresh.records)):
        torch.testing.assert_close(own._asdict(), other._asdict())
    assert session.assign(Admission(2, 0, key=7, prompt_length=5)) == fresh.assign(Admission(2, 0, 7, 5))
    session.write_assigned()
    assert session.inputs.keys[2] == 7


@pytest.mark.parametrize(
    "changed",
    [
        {"strategy": NeighborMixing(rate=0.4, k=2)},
        {"strategy": TokenSampling(), "tables": {}},
        {"tables": {"neighbors": torch.zeros(9, 2, dtype=torch.int64)}},
        {"parameters": {"gate": torch.zeros(3)}},
        {"end_ids": (3,)},
        {"temperature": 0.8},
        {"max_new_tokens": 7},
        {"slots": 4},
        {"plain_requests": True},
        {"stop_ids": (0,)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_call_of_another_shape_or_computation_gets_memory_of_its_own(changed):
    session = Session(SPEC, torch.zeros(0, 4), CPU, number=1)
    assert not session.renew(replace(SPEC, **changed), session.inputs.embedding, 2)
    assert session.spec is SPEC
    assert session.first_address == 2**32
    assert not session.renew(SPEC, torch.zeros(10, 4), 2)


def test_settings_that_no_burst_can_serve_are_refused():
    def engine(**settings: object) -> VllmEngine:
        return VllmEngine(ModelSource(), TokenSampling(), 8, 8, **settings)

    with pytest.raises(SettingError, match="burst=0 makes no step"):
        engine(burst=0)
    own = {"scheduler_cls": "mine.Scheduler"}
    with pytest.raises(SettingError, match=r"scheduler_cls=mine.Scheduler cannot run; set rollout.engine.burst=1"):
        engine(options=own)
    assert engine(burst=1, options=own)._arguments["scheduler_cls"] == "mine.Scheduler"
    with pytest.raises(SettingError, match="worker_cls=mine.Worker is not supported"):
        engine(options={"worker_cls": "mine.Worker"})
