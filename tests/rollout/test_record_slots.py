"""Slots that are assigned to requests, used again, and shared out among sessions; needs no vLLM."""

from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor
from torch._dynamo import config

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gaussian_top_k import GaussianTopK
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.latent_gumbel import LatentGumbel
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.runtime import compiled as compiled_strategies
from ngrpo.exploration.runtime.compiled import compiled
from ngrpo.exploration.soft import SoftThinking
from ngrpo.exploration.token import TokenSampling
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.rollout.records import stepper
from ngrpo.rollout.records.buffers import MixingBuffers
from ngrpo.rollout.records.session import Admission, CollectedRecords, Session, SessionSpec
from ngrpo.rollout.records.stepper import branches_of, choose, choose_and_record, fill_buffers, is_own, slots_of
from ngrpo.types.rollouts import Mixture, Prefix

VOCABULARY, DIM, BUDGET = 30, 4, 7
TABLE = torch.randn(VOCABULARY, DIM, generator=torch.Generator().manual_seed(0))
STRATEGIES: list[Exploration] = [
    NeighborMixing(rate=0.6, k=3),
    SoftThinking(top_n=4, rate=0.7, cold_entropy=2.5, cold_steps=2),
    GumbelSoftThinking(),
    LatentGumbel(top_k=4),
    GaussianSoftTokens(),
]


def session_of(strategy: Exploration, slots: int, number: int = 0) -> Session:
    spec = SessionSpec(
        strategy=strategy,
        tables=strategy.prepare(TABLE, Vocabulary(VOCABULARY, frozenset(), {})),
        parameters=strategy.initial_parameters(DIM),
        end_ids=(7, 8, 9),
        temperature=0.8,
        max_new_tokens=BUDGET,
        slots=slots,
        plain_requests=True,
    )
    return Session(spec, TABLE, torch.device("cpu"), number=number)


def logits_of(key: int, index: int) -> Tensor:
    """What the model would say to the request with that key; [1, V]."""
    return 2 * torch.randn(1, VOCABULARY, generator=torch.Generator().manual_seed(100 * key + index))


def run(session: Session, admission: Admission, start: int = 0, length: int = BUDGET) -> None:
    """Runs a request alone in its slot, from index ``start`` on."""
    address = torch.tensor([session.assign(admission)])
    session.write_assigned()
    for index in range(start, length):
        choose(session, logits_of(admission.key, index), address, torch.tensor([admission.prompt_length + index]))


def assert_equal(ours: CollectedRecords, other: CollectedRecords) -> None:
    assert (ours.supports is None) == (other.supports is None)
    for mine, theirs in zip(ours.supports or (), other.supports or (), strict=True):
        assert torch.equal(mine.rows(), theirs.rows())
    for mine, theirs in zip((*ours[:3], *ours.record), (*other[:3], *other.record), strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_slot_that_is_used_again_holds_nothing_of_before(strategy: Exploration) -> None:
    """Neither its end token, nor its explore, state or mixtures."""
    used, fresh = session_of(strategy, 2), session_of(strategy, 2)
    for number in range(6):
        run(used, Admission(1, number, key=40 + number, prompt_length=3 + number, explore=number % 2 == 0))
    last = Admission(1, 6, key=5, prompt_length=4)
    run(used, last, length=5)
    run(fresh, last, length=5)
    assert_equal(used.collect([1], [5]), fresh.collect([1], [5]))
    assert used.records.end_at[1] == fresh.records.end_at[1]
    assert fresh.collect([1], [5]).mixed.any()


def test_a_request_that_comes_back_finds_its_record() -> None:
    session, whole = session_of(STRATEGIES[0], 2), session_of(STRATEGIES[0], 2)
    admission = Admission(0, 3, key=11, prompt_length=4)
    run(session, admission, length=4)
    run(session, replace(admission), start=4)
    run(whole, admission)
    assert_equal(session.collect([0], [BUDGET]), whole.collect([0], [BUDGET]))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_prefix_is_fed_and_gone_on_from_as_if_it_had_been_chosen(strategy: Exploration) -> None:
    """In a slot whose last request had left a whole record."""
    given, key = 4, 23
    whole, going_on = session_of(strategy, 1), session_of(strategy, 1)
    run(whole, Admission(0, 0, key, prompt_length=4))
    record = whole.collect([0], [given])
    positions = record.mixed[0].nonzero()[:, 0] + 4
    prefix = Prefix(tuple(record.tokens[0].tolist()), Mixture(positions, record.record))
    run(going_on, Admission(0, 0, key + 1, prompt_length=2))
    run(going_on, Admission(0, 1, key, prompt_length=4, prefix=prefix), start=given)
    if not strategy.stateful:  # a count starts anew
        expected = whole.collect([0], [BUDGET])
        expected.log_probs[:, :given] = 0
        assert_equal(going_on.collect([0], [BUDGET]), expected)
    fed = []
    for session in (whole, going_on):
        buffers = MixingBuffers(16, max(strategy.width, 1), torch.device("cpu"), None if strategy.sums_rows else TABLE)
        fill_buffers(session, buffers, torch.zeros(4 + given, dtype=torch.int64), torch.arange(4 + given))
        fed.append([part for part in buffers.tensors if part is not None])
    for mine, theirs in zip(*fed, strict=True):
        assert torch.equal(mine[fed[0][0]], theirs[fed[0][0]])
    assert int(fed[0][0].sum()) == len(positions) > 0


def test_supports_are_those_of_the_slot_and_of_what_was_generated_in_it() -> None:
    """In slots that had other responses before, sampled plainly, with a prefix, and from the strategy's supports."""
    strategy, key = MinPSampling(0.3, largest_support=9), 23
    session, whole = session_of(strategy, 2), session_of(strategy, 1)
    run(whole, Admission(0, 0, key, prompt_length=4))
    (expected,) = whole.collect([0], [BUDGET]).supports or ()
    assert bool(expected.counts.all())
    assert len(expected.ids) > BUDGET
    prefix = Prefix(tuple(whole.collect([0], [3]).tokens[0].tolist()))
    run(session, Admission(0, 0, key + 1, prompt_length=2))
    run(session, Admission(1, 1, key, prompt_length=4, explore=False))
    run(session, Admission(0, 2, key, prompt_length=4, prefix=prefix), start=3)
    going_on, plain = session.collect([0, 1], [BUDGET, 5]).supports or ()
    assert going_on.counts.tolist() == [0, 0, 0, *expected.counts[3:].tolist()]
    assert going_on.after(3).rows().equal(expected.after(3).rows())
    assert plain.counts.tolist() == [0] * 5
    assert session.renew(session.spec, TABLE, number=4)
    run(session, Admission(1, 0, key, prompt_length=4))
    (again,) = session.collect([1], [6]).supports or ()
    assert again.rows().equal(expected.rows()[:6])


def test_an_end_token_in_the_prefix_ends_the_reasoning() -> None:
    session = session_of(NeighborMixing(rate=1.0), 1)
    run(session, Admission(0, 0, key=1, prompt_length=2, prefix=Prefix((5, 8, 4))), start=3)
    assert session.records.end_at[0] == 1
    assert not session.collect([0], [BUDGET]).mixed.any()


def test_records_end_with_the_response() -> None:
    session = session_of(NeighborMixing(rate=1.0, end_token=None), 3)
    for slot in range(3):
        run(session, Admission(slot, slot, key=slot, prompt_length=2))
    collected = session.collect([2, 0], [2, 5])
    assert collected.mixed[0, 2:].any().item() is False
    assert collected.tokens.shape == (2, 5)
    assert collected.tokens[1].tolist() == session.records.tokens[0, :5].tolist()
    assert len(collected.record.ids) == int(collected.mixed.sum())


def test_every_session_has_addresses_of_its_own() -> None:
    first, third = session_of(STRATEGIES[0], 4), session_of(STRATEGIES[0], 2, number=2)
    addresses = torch.tensor([-1, 0, 3, 4, third.first_address - 1, third.first_address, third.first_address + 2])
    assert slots_of(first.inputs, addresses).tolist() == [4, 0, 3, 4, 4, 4, 4]
    assert slots_of(third.inputs, addresses).tolist() == [2, 2, 2, 2, 2, 0, 2]
    assert is_own(first.inputs, addresses).tolist() == [False, True, True, False, False, False, False]
    assert third.assign(Admission(1, 0, 1, 1)) == third.first_address + 1


@pytest.mark.parametrize("vectors", [False, True])
def test_a_session_fills_its_own_entries_beside_another(vectors: bool) -> None:
    """A narrow one beside a wide one."""
    wide = session_of(NeighborMixing(rate=1.0, k=3, end_token=None), 2, number=5)
    narrow = session_of(NeighborMixing(rate=1.0, k=2, end_token=None), 2, number=6)
    rows = []
    for session in (wide, narrow):
        run(session, Admission(1, 0, key=3, prompt_length=2))
        rows += [(session.first_address + 1, position) for position in (1, 2, 4)]
    rows = [*rows[::2], (-1, 3), *rows[1::2]]
    addresses, positions = torch.tensor(rows).unbind(1)

    def buffers() -> MixingBuffers:
        return MixingBuffers(len(rows), 3, torch.device("cpu"), TABLE if vectors else None)

    together, alone = buffers(), {session: buffers() for session in (wide, narrow)}
    fill_buffers(wide, together, addresses, positions)
    fill_buffers(narrow, together, addresses, positions, beside=True)
    for session, own in alone.items():
        own.tensors.weights.fill_(0.0 if vectors else 9.0)
        fill_buffers(session, own, addresses, positions)
    mixed = together.tensors.mixed
    assert mixed.tolist() == [position > 1 and address >= 0 for address, position in rows]
    for session, own in alone.items():
        at = is_own(session.inputs, addresses) & mixed
        assert int(at.sum()) == 2
        for ours, theirs in zip(together.tensors, own.tensors, strict=True):
            if ours is not None and theirs is not None:
                assert torch.equal(ours[at], theirs[at])


def test_every_way_to_choose_has_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler gives a function up that it has compiled a number of times, which is one here."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager", fullgraph=True))
    monkeypatch.setattr(compiled_strategies, "_COMPILED", {})
    torch._dynamo.reset()
    strategy, rows = NeighborMixing(rate=0.6), 3
    arguments = (torch.randn(rows, VOCABULARY), torch.arange(rows), torch.full((rows,), 4), torch.ones(rows).bool())
    for temperature, plain, steered, distributions in product((0.7, 1.0), *[(False, True)] * 3):
        spec = replace(session_of(strategy, 8).spec, temperature=temperature, plain_requests=plain, steered=steered)
        session, whole = (
            Session(replace(spec, distributions=distributions), TABLE, torch.device("cpu")) for _ in range(2)
        )
        with config.patch(recompile_limit=1):
            run = compiled(choose_and_record, strategy, *branches_of(session))
            tokens = run(session.records, session.inputs, temperature, *arguments)
        assert torch.equal(tokens, choose(whole, *arguments))
    torch._dynamo.reset()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("strategy", "way"),
    [
        *product((NeighborMixing(rate=0.6), TokenSampling(top_p=0.9)), ("plain_requests", "steered", "distributions")),
        *((one, "alone") for one in (TokenSampling(top_k=20), MinPSampling(), LatentGumbel(), GaussianTopK())),
    ],
)
def test_on_a_gpu_each_way_to_choose_compiles_for_a_large_vocabulary(strategy: Exploration, way: str) -> None:
    """What it says where it fails is an error in tests."""
    vocabulary, rows, device = 151_936, 64, torch.device("cuda")
    torch.manual_seed(0)
    with device:
        embedding = torch.randn(vocabulary, DIM)
        tables = strategy.prepare(embedding, Vocabulary(vocabulary, frozenset(), {}))
        logits, recorded = 3 * torch.randn(rows, vocabulary), torch.ones(rows).bool()
        addresses, positions = torch.arange(rows), torch.full((rows,), 4)
    ways = {name: name == way for name in ("plain_requests", "steered", "distributions")}
    spec = replace(session_of(strategy, rows).spec, tables=tables, **ways)  # type: ignore[arg-type]
    fast, slow = (Session(spec, embedding, device) for _ in range(2))
    tokens = choose(fast, logits, addresses, positions, recorded)
    inputs = (slow.inputs, spec.temperature, logits, addresses, positions, recorded)
    same = tokens == choose_and_record(strategy, slow.records, *inputs)
    assert same.float().mean() > 0.95  # a draw near the border of two tokens may round to either
    at = (torch.arange(rows, device=device)[same], 4)
    torch.testing.assert_close(fast.records.log_probs[at], slow.records.log_probs[at], atol=1e-4, rtol=1e-4)
    kept = [one.records.distributions for one in (fast, slow)]
    entropies = [one.entropy[at] for one in kept if one is not None]
    assert len(entropies) == 2 * (way == "distributions")
    torch.testing.assert_close(entropies[:1], entropies[1:], atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_the_compiled_fill_is_the_eager_one() -> None:
    sessions = []
    for number, width in ((4, 3), (5, 2)):
        session = session_of(NeighborMixing(rate=1.0, k=width, end_token=None), 3, number=number)
        for slot in range(3):
            run(session, Admission(slot, 0, key=3 + slot, prompt_length=2))
        sessions.append(session)
    for tokens in (6, 9, 2, 4):
        owners = torch.tensor([sessions[i % 2].first_address for i in range(tokens)])
        addresses, positions = owners + torch.arange(tokens) % 3, torch.arange(tokens) % 6 + 1
        eager, fast = (MixingBuffers(16, 3, torch.device("cpu")) for _ in range(2))
        for session, beside in zip(sessions, (False, True), strict=True):
            for fill, buffers in ((stepper._fill, eager), (stepper._compiled_fill, fast)):
                fill(session.records, session.inputs, buffers.tensors, addresses, positions, beside)
        for ours, theirs in zip(fast.tensors[:3], eager.tensors[:3], strict=True):
            assert torch.equal(ours, theirs)
        assert eager.tensors.mixed[:tokens].tolist() == (positions > 1).tolist()
