"""The records that vLLM's workers keep, held to a step-by-step reference; needs no vLLM."""

from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration, Step, StepContext
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gaussian_top_k import GaussianTopK
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.runtime.compiled import compiled
from ngrpo.exploration.runtime.decide import decide
from ngrpo.exploration.soft import SoftThinking
from ngrpo.exploration.token import TokenSampling
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.rollout.records.buffers import MixingBuffers
from ngrpo.rollout.records.session import Admission, Session, SessionSpec
from ngrpo.rollout.records.stepper import choose, choose_and_record, fill_buffers, fill_vectors, lookup, pad_to_two

VOCABULARY, BUDGET, TEMPERATURE = 40, 6, 0.7
PROMPTS = [3, 5, 2]
KEYS = [11, 22, 33]
SCRATCH = len(PROMPTS)
NAMES = ("tokens", "log_probs", "mixed", "ids", "weights")
NEIGHBORS = (torch.arange(VOCABULARY)[:, None] + torch.arange(3)) % VOCABULARY


@dataclass(frozen=True)
class Scripted(Exploration):
    """Emits the most likely token, and mixes it with the next id wherever the reasoning has not ended."""

    width: int = 2

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        token = logits.argmax(-1)
        ids = torch.stack([token, token + 1], -1)
        return Step(token, ~ctx.ended, ids, torch.tensor([[0.75, 0.25]]).expand(len(token), 2))


def session_of(
    strategy: Exploration, end_ids: tuple[int, ...] = (), explore: tuple[bool, ...] = (True,) * 3
) -> Session:
    spec = SessionSpec(
        strategy=strategy,
        tables={"neighbors": NEIGHBORS.int()},
        parameters={},
        end_ids=end_ids,
        temperature=TEMPERATURE,
        max_new_tokens=BUDGET,
        slots=SCRATCH,
        plain_requests=not all(explore),
    )
    return admitted(Session(spec, torch.zeros(0, 4), torch.device("cpu")), explore)


def admitted(session: Session, explore: tuple[bool, ...]) -> Session:
    """Gives every slot its request."""
    for slot, prompt_length in enumerate(PROMPTS):
        session.assign(Admission(slot, slot, KEYS[slot], prompt_length, explore[slot]))
    session.write_assigned()
    return session


def copies(session: Session) -> tuple[Tensor, ...]:
    """The records of all slots but scratch."""
    records = session.records
    everything = (records.tokens, records.log_probs, records.mixed, records.record.ids, records.record.weights)
    return tuple(record[:SCRATCH].clone() for record in everything)


def logits_for(*tokens: int) -> Tensor:
    return 9.0 * torch.nn.functional.one_hot(torch.tensor(tokens), VOCABULARY).float()


def take(session: Session, index: int, **token_of_slot: int) -> None:
    """Lets the slots ``s0``, ``s1``.. choose the given tokens as number ``index`` of their responses."""
    slots = [int(name[1:]) for name in token_of_slot]
    positions = torch.tensor([PROMPTS[s] + index for s in slots])
    chosen = choose(session, logits_for(*token_of_slot.values()), torch.tensor(slots), positions)
    assert chosen.tolist() == list(token_of_slot.values())


@pytest.mark.parametrize("explore", [(True, True, True), (True, False, True)])
def test_choose_and_feed_against_one_slot_at_a_time(explore):
    strategy = NeighborMixing(rate=0.5, k=3)
    session = session_of(strategy, end_ids=(7,), explore=explore)
    generator = torch.Generator().manual_seed(0)
    record: dict[tuple[int, int], tuple[Step, Tensor]] = {}
    ended = [False] * 3
    for index in range(BUDGET):
        order = torch.randperm(3, generator=generator)
        logits = torch.randn(3, VOCABULARY, generator=generator) * 2
        lengths = torch.tensor(PROMPTS)[order]
        tokens = choose(session, logits, order, lengths + index)
        for row, slot in enumerate(order.tolist()):
            context = StepContext(
                keys=torch.tensor([KEYS[slot]]),
                positions=torch.tensor([PROMPTS[slot] + index]),
                embedding=torch.zeros(0, 4),
                ended=torch.tensor([ended[slot]]),
                end_ids=torch.tensor([7]),
                tables={"neighbors": NEIGHBORS},
                state=torch.zeros(0, dtype=torch.int32),
                progress=torch.tensor(0),
            )
            step, log_prob = decide(
                strategy, logits[row : row + 1], TEMPERATURE, context, torch.tensor([explore[slot]])
            )
            assert int(tokens[row]) == int(step.token)
            ended[slot] |= int(step.token) == 7
            record[slot, index] = step, log_prob
    tokens, log_probs, mixed, ids, weights = copies(session)
    for at, (step, log_prob) in record.items():
        assert (int(tokens[at]), bool(mixed[at])) == (int(step.token), bool(step.mixed))
        assert torch.equal(ids[at], step.ids[0].int())
        torch.testing.assert_close(weights[at], step.weights[0])
        torch.testing.assert_close(log_probs[at], log_prob[0])
    everything = [(slot, position) for slot in range(3) for position in range(PROMPTS[slot] + BUDGET)]
    mixed, (ids, weights, *_) = lookup(session.records, session.inputs, *torch.tensor(everything).unbind(1))
    for row, (slot, position) in enumerate(everything):
        step = record[slot, position - PROMPTS[slot]][0] if position >= PROMPTS[slot] else None
        assert bool(mixed[row]) == (step is not None and bool(step.mixed))
        if step is not None and mixed[row]:
            assert torch.equal(ids[row], step.ids[0].int())
            torch.testing.assert_close(weights[row], step.weights[0])
    assert mixed.any()


@pytest.mark.parametrize("none", [-1, SCRATCH, "unfinished prefill"])
def test_rows_without_a_slot_leave_the_records_alone(none):
    session = session_of(Scripted())
    take(session, 0, s0=4, s1=5, s2=6)
    before = copies(session)
    unfinished = isinstance(none, str)
    slots = torch.tensor([0, 1, 2] if unfinished else [none, 1, none])
    recorded = torch.tensor([False, True, False]) if unfinished else None
    positions = torch.tensor([700, PROMPTS[1] + 1, 1], dtype=torch.int32)
    chosen = choose(session, logits_for(9, 8, 9), slots, positions, recorded)
    assert chosen.tolist() == [9, 8, 9]
    assert not lookup(session.records, session.inputs, torch.tensor([-1, SCRATCH]), torch.tensor([0, 0]))[0].any()
    after = copies(session)
    for old, new in zip(before, after, strict=True):
        assert len(new) == SCRATCH
        assert torch.equal(old[:, 0], new[:, 0])
        assert torch.equal(old[[0, 2], 1:], new[[0, 2], 1:])
    assert session.records.tokens[1, :2].tolist() == [5, 8]


def test_prompt_tokens_and_positions_past_the_budget_are_fed_plainly():
    session = session_of(Scripted())
    for index in range(BUDGET):
        take(session, index, s0=4, s1=5, s2=6)
    positions = torch.arange(PROMPTS[1] + BUDGET + 2)
    mixed, (ids, weights, *_) = lookup(session.records, session.inputs, torch.full_like(positions, 1), positions)
    assert mixed.tolist() == [False] * PROMPTS[1] + [True] * BUDGET + [False] * 2
    assert ids[PROMPTS[1]].tolist() == [5, 6]
    assert weights[PROMPTS[1]].tolist() == [0.75, 0.25]
    assert ids.dtype == torch.int32


def test_an_end_token_ends_its_own_slot_from_the_next_token_on():
    session = session_of(Scripted(), end_ids=(7, 8))
    take(session, 0, s0=1, s1=7, s2=1)
    take(session, 1, s0=8, s1=1, s2=1)
    take(session, 2, s0=7, s1=7, s2=1)
    take(session, 3, s0=1, s1=1, s2=1)
    assert session.records.mixed[:3, :4].int().tolist() == [[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]]
    assert session.records.end_at[:3].tolist() == [1, 0, BUDGET]


def test_a_position_chosen_anew_takes_back_its_end():
    session = session_of(Scripted(), end_ids=(7,))
    take(session, 0, s0=1)
    take(session, 1, s0=7)
    take(session, 1, s0=2)
    take(session, 2, s0=3)
    assert session.records.mixed[0, :3].tolist() == [True] * 3
    assert session.records.end_at[0] == BUDGET
    take(session, 1, s0=7)
    take(session, 1, s0=7)
    take(session, 2, s0=3)
    assert session.records.mixed[0, :3].tolist() == [True, True, False]
    assert session.records.end_at[0] == 1


def test_narrower_mixtures_leave_nothing_of_wider_ones_in_the_buffers():
    buffers = MixingBuffers(4, 3, torch.device("cpu"))
    buffers.tensors.weights.fill_(9.0)
    buffers.tensors.mixed.fill_(True)
    session = session_of(Scripted())
    take(session, 0, s0=4, s1=5)
    fill_buffers(session, buffers, torch.tensor([1, 0, 1]), torch.tensor([PROMPTS[1], PROMPTS[0], 0]))
    mixed, ids, weights, _ = buffers.tensors
    assert mixed.tolist() == [True, True, False, True]
    assert ids[:2, :2].tolist() == [[5, 6], [4, 5]]
    assert weights[:2].tolist() == [[0.75, 0.25, 0.0]] * 2
    buffers.in_use = True
    buffers.clear()
    assert not mixed.any()
    buffers.reset()
    assert not weights.any()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [TokenSampling(), NeighborMixing(rate=0.5, k=3)])
def test_the_compiled_step_is_the_eager_one(strategy):
    eager, fast = (session_of(strategy, (7,), (True, False, True)) for _ in range(2))
    generator = torch.Generator().manual_seed(3)
    for index in range(BUDGET):
        slots = torch.tensor([2, 0, 1] if index < 4 else [1, 2])
        positions = torch.tensor(PROMPTS)[slots] + index
        logits = torch.randn(len(slots), VOCABULARY, generator=generator) * 3
        arguments = (TEMPERATURE, logits, slots, positions, torch.ones(len(slots), dtype=torch.bool))
        expected = choose_and_record(strategy, eager.records, eager.inputs, *arguments)
        tokens = compiled(choose_and_record, strategy)(fast.records, fast.inputs, *arguments)
        assert torch.equal(tokens, expected)
    for name, ours, reference in zip(NAMES, copies(fast), copies(eager), strict=True):
        torch.testing.assert_close(ours, reference, atol=1e-6 if name in ("log_probs", "weights") else 0, rtol=0)
    assert torch.equal(fast.records.end_at, eager.records.end_at)
    assert bool(eager.records.mixed.any()) == (strategy.width > 0)


def test_a_batch_of_one_gets_a_row_that_is_not_recorded() -> None:
    one, two = torch.tensor([[3.0, 4.0]]), torch.tensor([5, 6])
    assert pad_to_two(one, 0).tolist() == [[3.0, 4.0], [0.0, 0.0]]
    assert pad_to_two(torch.tensor([7]), -1).tolist() == [7, -1]
    assert pad_to_two(two, -1) is two


STATES: list[Exploration] = [
    SoftThinking(top_n=4, rate=0.7, cold_entropy=1.5, cold_steps=2),
    GumbelSoftThinking(),
    GaussianSoftTokens(),
    GaussianTopK(k=3),
    HybridReasoning(),
]


def full_session(strategy: Exploration, table: Tensor) -> Session:
    """A session with all that a strategy may need, of 3 slots."""
    spec = SessionSpec(
        strategy=strategy,
        tables=strategy.prepare(table, Vocabulary(VOCABULARY, frozenset(), {})),
        parameters=strategy.initial_parameters(table.shape[1]),
        end_ids=(7,),
        temperature=TEMPERATURE,
        max_new_tokens=BUDGET,
        slots=SCRATCH,
        plain_requests=True,
    )
    return admitted(Session(spec, table, torch.device("cpu")), (True, True, False))


def test_a_carried_count_is_that_of_the_position_before():
    """Also where a position is chosen anew, and not another slot's."""
    strategy = SoftThinking(top_n=2, cold_entropy=0.1, cold_steps=3)
    session = full_session(strategy, torch.zeros(0, 4))
    cold, warm = logits_for(3), torch.zeros(1, VOCABULARY)
    indices = [(0, cold), (1, cold), (1, cold), (1, warm), (1, cold), (2, cold), (2, warm), (2, cold)]
    chosen = [
        int(choose(session, logits, torch.tensor([1]), torch.tensor([PROMPTS[1] + index]))) for index, logits in indices
    ]
    assert session.records.state is not None
    assert session.records.state[:3, :3].tolist() == [[0, 0, 0], [1, 2, 3], [0, 0, 0]]
    assert [chosen[i] for i in (5, 7)] == [7, 7]
    assert 7 not in chosen[:5]
    assert session.records.end_at[:3].tolist() == [BUDGET, 2, BUDGET]


@pytest.mark.parametrize("strategy", [TokenSampling(), NeighborMixing()])
def test_strategies_without_further_channels_have_no_room_for_them(strategy):
    records = session_of(strategy).records
    assert records.record[2:] == (None, None, None)
    assert records.state is None
    assert MixingBuffers(4, 3, torch.device("cpu")).tensors.vectors is None


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STATES)
def test_compiled_steps_and_vectors_are_the_eager_ones(strategy):
    table = torch.randn(VOCABULARY, 8, generator=torch.Generator().manual_seed(1))
    eager, fast = (full_session(strategy, table) for _ in range(2))
    slow_buffers, fast_buffers = (MixingBuffers(16, 1, torch.device("cpu"), table).tensors for _ in range(2))
    generator = torch.Generator().manual_seed(3)
    for index in range(BUDGET):
        slots = torch.tensor([2, 0, 1] if index < 4 else [1, 2])
        positions = torch.tensor(PROMPTS)[slots] + index
        logits = torch.randn(len(slots), VOCABULARY, generator=generator) * 2
        arguments = (TEMPERATURE, logits, slots, positions, torch.ones(len(slots), dtype=torch.bool))
        expected = choose_and_record(strategy, eager.records, eager.inputs, *arguments)
        assert torch.equal(compiled(choose_and_record, strategy)(fast.records, fast.inputs, *arguments), expected)
        for function, session, buffers in (
            (partial(fill_vectors, strategy), eager, slow_buffers),
            (compiled(fill_vectors, strategy), fast, fast_buffers),
        ):
            function(session.records, session.inputs, buffers, slots, positions)
        at = eager.records.mixed[slots, index]
        assert fast_buffers.mixed[: len(slots)].tolist() == at.tolist()
        torch.testing.assert_close(fast_buffers.vectors[: len(slots)][at], slow_buffers.vectors[: len(slots)][at])
    ours, reference = (one.collect(range(SCRATCH), [BUDGET, 4, BUDGET]) for one in (fast, eager))
    assert torch.equal(ours.mixed, reference.mixed)
    assert ours.mixed.any()
    torch.testing.assert_close(ours.log_probs, reference.log_probs, atol=1e-4, rtol=1e-5)
    for mine, other in zip(ours.record, reference.record, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)
