"""The pieces of bursts: their length, the rows on the device, and the memory of a session that is used again."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, Step, StepContext
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.records.buffers import MixingBuffers
from ngrpo.rollout.records.session import Admission, Session, SessionSpec
from ngrpo.rollout.vllm.burst_length import BurstLength, most_steps
from ngrpo.rollout.vllm.burst_rows import BurstRows, advance, note
from ngrpo.rollout.vllm.engine import VllmEngine
from ngrpo.rollout.vllm.settings import burst_of

pytest.importorskip("vllm.v1", reason="vLLM is not installed")

from ngrpo.rollout.vllm import mixing_state
from ngrpo.rollout.vllm.captured_steps import CapturedSteps
from ngrpo.rollout.vllm.mixing_state import MixingState

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
    for expected in (16, 8, 4, 2, 2):
        length.observe(made=50, computed=100)
        assert length.steps(100) == expected
    for expected in (4, 8, 16, 32, 32):
        length.observe(made=99, computed=100)
        assert length.steps(100) == expected
    length.observe(made=90, computed=100)
    assert length.steps(100) == 32


def test_bursts_of_a_batch_that_others_may_join_begin_short():
    made, lengths = 1, []  # by the prefill
    while made < 100:
        lengths.append(most_steps([made] * 8))
        made += lengths[-1]
    assert lengths == [4, 4, 8, 16, 32, 64]
    assert most_steps([0]) == most_steps([0, 100]) == 4


@pytest.mark.parametrize(("new", "expected"), [(0, 32), (2, 32), (3, 4), (10, 4)])
def test_a_few_new_rows_do_not_shorten_the_bursts_of_many(new: int, expected: int):
    assert most_steps([1] * new + [40] * (10 - new)) == expected


def test_an_engine_without_bursts_never_gets_any():
    length = BurstLength(1)
    for made in (0, 100):
        length.observe(made, computed=100)
        assert length.steps(100) == 1


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
        {"steered": True},
        {"distributions": True},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_call_of_another_shape_or_computation_gets_memory_of_its_own(changed):
    session = Session(SPEC, torch.zeros(0, 4), CPU, number=1)
    assert not session.renew(replace(SPEC, **changed), session.inputs.embedding, 2)
    assert session.spec is SPEC
    assert session.first_address == 2**32
    assert not session.renew(SPEC, torch.zeros(10, 4), 2)


def test_a_step_in_which_nothing_was_scheduled_is_no_burst(monkeypatch: pytest.MonkeyPatch):
    """A paused vLLM schedules none of its rows; the workers would keep the burst for the prompts that come next."""
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    from ngrpo.rollout.vllm.burst_scheduler import BurstScheduler

    monkeypatch.setattr(AsyncScheduler, "_update_after_schedule", lambda *given: None)
    scheduler: Any = object.__new__(BurstScheduler)
    row = SimpleNamespace(
        is_prefill_chunk=False, num_prompt_tokens=4, max_tokens=20, num_tokens=5, num_output_placeholders=1
    )
    row.num_computed_tokens, scheduler._steps, scheduler.requests = 5, 8, {"row": row}
    for scheduled, steps in (({}, 1), ({"row": 1}, 8), ({"row": 7}, 1)):
        output: Any = SimpleNamespace(num_scheduled_tokens=scheduled, preempted_req_ids=set())
        output.total_num_scheduled_tokens = sum(scheduled.values())
        scheduler._update_after_schedule(output)
        assert burst_of(output) == steps


@pytest.mark.parametrize("other", ["uses_mrope", "is_multimodal_model", "enable_prompt_embeds"])
def test_what_the_host_prepares_for_each_forward_leaves_no_burst(other: str):
    from ngrpo.rollout.vllm.burst_scheduler import _possible

    model = SimpleNamespace(uses_mrope=False, is_multimodal_model=False, enable_prompt_embeds=False)
    config = SimpleNamespace(
        parallel_config=SimpleNamespace(decode_context_parallel_size=1),
        kv_transfer_config=None,
        use_v2_model_runner=True,
        model_config=model,
    )
    assert _possible(config)
    setattr(model, other, True)
    assert not _possible(config)


@pytest.mark.parametrize("updatable", [True, False])
def test_a_graph_whose_metadata_would_stay_is_not_replayed(updatable: bool):
    from vllm.config import CUDAGraphMode

    from ngrpo.rollout.vllm.burst_step import Attention
    from ngrpo.rollout.vllm.bursts import Bursts

    bursts: Any = object.__new__(Bursts)
    bursts._told, bursts._runner = False, SimpleNamespace(full_graph=lambda batch: batch)
    group = SimpleNamespace(supports_draft_decode_metadata_update=updatable)
    attention = Attention(CUDAGraphMode.FULL, (), torch.zeros(0), [[group]], None, {})
    assert (bursts._graph("batch", attention) is None) is not updatable
    assert bursts._told is not updatable
    assert bursts._graph("batch", replace(attention, mode=CUDAGraphMode.PIECEWISE)) is None


class FailsAlways(NeighborMixing):
    """Its author's code raises at every step."""

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        raise KeyError("a typing error of the author")


def state_with(strategy: Exploration) -> MixingState:
    """A worker's state with one session, number 0."""
    state: Any = object.__new__(MixingState)
    state.device, state.failures, state._spare = CPU, {}, None
    state.sessions = {0: Session(replace(SPEC, strategy=strategy), torch.zeros(0, 4), CPU)}
    state.buffers = MixingBuffers(4, 2, CPU)
    made: MixingState = state
    return made


def chosen_by(state: MixingState) -> Tensor:
    rows = torch.zeros(1, dtype=torch.int64)
    return state.choose(torch.zeros(1, 10), rows, rows + 1, rows == 0, None)


def test_the_memory_of_a_session_that_failed_is_not_used_again():
    """A step that was captured after the failure makes no tokens, for whoever has that memory."""
    state = state_with(FailsAlways(rate=0.5, k=2))
    chosen_by(state)
    assert "a typing error" in state.failures[0]
    state.end(0)
    assert state._spare is None
    state = state_with(SPEC.strategy)
    (session,) = state.sessions.values()
    state.end(0)
    assert state._spare is session


def test_what_fails_while_it_is_captured_is_no_failure_of_the_strategy(monkeypatch: pytest.MonkeyPatch):
    """It may ask for what only a capture forbids; `CapturedSteps` runs it without a graph then."""
    monkeypatch.setattr(mixing_state, "_capturing", lambda device: True)
    state = state_with(FailsAlways(rate=0.5, k=2))
    with pytest.raises(KeyError, match="a typing error"):
        chosen_by(state)
    assert not state.failures


def test_only_so_many_kinds_of_steps_are_counted():
    class Counted:
        rows = SimpleNamespace(tokens=torch.zeros(4))
        made = 0

        def choose_and_advance(self, hidden: Tensor) -> None:
            self.made += 1

    step, steps = Counted(), CapturedSteps()
    for memory in range(1000):
        steps.run(step, torch.zeros(1), (memory,))
    assert step.made == 1000
    assert len(steps._runs) <= 64


def test_settings_that_no_burst_can_serve_are_refused():
    def engine(**settings: object) -> VllmEngine:
        return VllmEngine(ModelSource(), TokenSampling(), 8, 8, **settings)

    with pytest.raises(SettingError, match="burst=0 makes no step"):
        engine(burst=0)
    own = {"scheduler_cls": "mine.Scheduler"}
    with pytest.raises(SettingError, match=r"scheduler_cls=mine.Scheduler cannot run; set rollout.engine.burst=1"):
        engine(options=own)
    assert engine(burst=1, options=own)._arguments["scheduler_cls"] == "mine.Scheduler"
    assert engine(burst=1)._arguments["scheduler_cls"].endswith("BurstScheduler")  # by which the plugin is loaded
    with pytest.raises(SettingError, match="worker_cls=mine.Worker is not supported"):
        engine(options={"worker_cls": "mine.Worker"})
