"""Recorded supports: the sets of the slow definitions, drawn from as sampling without a record draws from them."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from contexts import step_context
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration, Step
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.runtime.decide import decide
from ngrpo.exploration.support import masked_to, token_log_prob, within
from ngrpo.exploration.token import TokenSampling
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.study.mix_until import Limits, MixUntil
from ngrpo.types.support import NO_ID

ROWS, VOCABULARY = 40, 24
LOGITS = 2 * torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(3))
EVERY = VOCABULARY
"""Room for all ids, so that nothing is cut."""
STRATEGIES: list[TokenSampling | MinPSampling] = [
    TokenSampling(top_k=5, largest_support=EVERY),
    TokenSampling(top_p=0.8, largest_support=EVERY),
    TokenSampling(top_k=9, top_p=0.7, largest_support=EVERY),
    TokenSampling(top_k=1, largest_support=EVERY),
    TokenSampling(top_p=1 - 1e-12, largest_support=EVERY),
    MinPSampling(0.1, largest_support=EVERY),
    MinPSampling(1e-30, largest_support=EVERY),
    MinPSampling(1.0, largest_support=EVERY),
]
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)


def sets(step: Step) -> list[set[int]]:
    assert step.support is not None
    return [set(row.tolist()) - {NO_ID} for row in step.support]


def slow_sets(strategy: TokenSampling | MinPSampling, logits: Tensor) -> list[set[int]]:
    """By definition, a row and an id after the other, in Python's floats."""
    found = []
    for row in logits.double().tolist():
        order = sorted(range(len(row)), key=lambda v: (-row[v], v))
        if isinstance(strategy, MinPSampling):
            top = row[order[0]]
            kept = [v for v in order if math.exp(row[v] - top) >= strategy.p_min * (1 - 1e-9)]
        else:
            kept = order
            if strategy.top_k:
                kept = [v for v in order if row[v] >= row[order[min(strategy.top_k, len(row)) - 1]]]
            total, mass, nucleus = sum(math.exp(row[v]) for v in kept), 0.0, []
            for v in kept:
                if strategy.top_p < 1 and mass >= strategy.top_p:
                    break
                nucleus.append(v)
                mass += math.exp(row[v]) / total
            kept = nucleus
        found.append(set(kept))
    return found


@each_strategy
def test_the_record_is_the_set_of_the_definition(strategy: TokenSampling | MinPSampling) -> None:
    step = strategy.step(LOGITS, step_context(ROWS))
    assert sets(step) == slow_sets(strategy, LOGITS)
    assert all(int(token) in kept for token, kept in zip(step.token, sets(step), strict=True))


@each_strategy
def test_the_draws_are_those_without_a_record(strategy: TokenSampling | MinPSampling) -> None:
    context = step_context(ROWS)
    unrecorded = replace(strategy, largest_support=0).step(LOGITS, context)
    assert unrecorded.support is None
    assert strategy.step(LOGITS, context).token.equal(unrecorded.token)


def test_sets_of_one_id_and_of_all() -> None:
    context = step_context(ROWS)
    for strategy in (STRATEGIES[3], STRATEGIES[7]):
        step = strategy.step(LOGITS, context)
        assert step.token.equal(LOGITS.argmax(-1))
        assert strategy.log_prob(LOGITS, step, context).tolist() == [0.0] * ROWS
    step = STRATEGIES[6].step(LOGITS, context)
    assert [len(one) for one in sets(step)] == [VOCABULARY] * ROWS
    assert step.token.equal(TokenSampling().step(LOGITS, context).token)


def test_ties_are_kept_as_far_as_there_is_room_and_the_smaller_ids_come_first() -> None:
    tied = torch.tensor([[1.0, 3.0, 2.0, 2.0, 2.0, 0.0]])
    context = step_context(1)
    assert sets(TokenSampling(top_k=2, largest_support=6).step(tied, context)) == [{1, 2, 3, 4}]
    for room, kept in ((3, 3), (2, 2), (1, 2)):  # which of equals goes where there is no room is the device's choice
        (one,) = sets(TokenSampling(top_k=2, largest_support=room).step(tied, context))
        assert len(one) == kept
        assert {1} < one < {1, 2, 3, 4}
    assert sets(TokenSampling(top_p=0.5, largest_support=8).step(torch.zeros(1, 8), context)) == [{0, 1, 2, 3}]
    assert sets(MinPSampling(1.0, largest_support=8).step(torch.zeros(1, 6), context)) == [set(range(6))]


@pytest.mark.parametrize("strategy", [TokenSampling(top_p=0.999), MinPSampling(1e-4)], ids=str)
def test_larger_sets_are_cut_to_the_most_likely_before_the_draw(strategy: TokenSampling | MinPSampling) -> None:
    rows = 400
    logits = LOGITS[:1].repeat(rows, 1)
    step = replace(strategy, largest_support=3).step(logits, step_context(rows))
    assert sets(step) == [set(LOGITS[0].topk(3).indices.tolist())] * rows
    assert set(step.token.tolist()) == sets(step)[0]
    drawn = step.token.bincount(minlength=VOCABULARY) / rows
    kept = LOGITS[0].topk(3)
    assert float((drawn[kept.indices] - kept.values.softmax(-1)).abs().max()) < 0.08


def test_a_vocabulary_smaller_than_the_room_is_filled_up() -> None:
    step = TokenSampling(top_p=0.9, largest_support=128).step(LOGITS, step_context(ROWS))
    assert step.support is not None
    assert step.support.shape == (ROWS, 128)
    assert sets(step) == slow_sets(TokenSampling(top_p=0.9), LOGITS)


def test_ids_of_no_probability_are_in_no_set() -> None:
    logits = LOGITS.clone()
    logits[:, ::3] = -torch.inf
    for strategy in STRATEGIES:
        assert all(not one & set(range(0, VOCABULARY, 3)) for one in sets(strategy.step(logits, step_context(ROWS))))


def slow_log_prob(logits: Tensor, token: Tensor, support: Tensor) -> Tensor:
    """The whole softmax, what is kept of it, divided by its sum."""
    made = []
    for row, chosen, ids in zip(logits.double(), token.tolist(), support.tolist(), strict=True):
        probs = row.softmax(-1)
        kept = sorted(set(ids) - {NO_ID}) or list(range(len(row)))
        made.append((probs[chosen] / probs[kept].sum()).log())
    return torch.stack(made)


@each_strategy
def test_scores_are_renormalised_on_the_recorded_set_of_whichever_model_scores(strategy: Exploration) -> None:
    context = step_context(ROWS)
    step, log_probs = decide(strategy, LOGITS * 0.7, 0.7, context, torch.arange(ROWS) % 3 > 0)
    assert step.support is not None
    assert (step.support[::3] == NO_ID).all()
    torch.testing.assert_close(log_probs.double(), slow_log_prob(LOGITS, step.token, step.support), atol=1e-5, rtol=0)
    other = LOGITS.roll(1, -1)  # another policy, under which the kept ids are others
    expected = slow_log_prob(other, step.token, step.support)
    made = strategy.log_prob(other, step, context)
    torch.testing.assert_close(made.double(), expected, atol=1e-5, rtol=0)
    assert bool(made.isfinite().all())
    assert bool((made <= 1e-6).all())


def test_gradients_of_scores_are_those_of_finite_differences_and_none_leaves_the_set() -> None:
    logits = LOGITS[:6].double().requires_grad_()
    step, _ = decide(MinPSampling(0.1, largest_support=9), LOGITS[:6], 1.0, step_context(6), torch.arange(6) != 2)
    assert step.support is not None
    support = step.support
    torch.autograd.gradcheck(lambda z: token_log_prob(z, step.token, support), logits)
    (gradient,) = torch.autograd.grad(token_log_prob(logits, step.token, support).sum(), logits)
    inside = masked_to(logits, support).isfinite()
    assert bool((gradient[~inside] == 0).all())
    assert bool(inside[2].all())
    assert bool((gradient[2] != 0).all())


def test_values_on_a_set() -> None:
    support = torch.tensor([[3, 0, NO_ID]])
    assert within(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), support).tolist() == [[4.0, 1.0, -math.inf]]
    assert masked_to(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), support).tolist() == [[1.0, -math.inf, -math.inf, 4.0]]


@pytest.mark.parametrize("size", [-1, -128])
@pytest.mark.parametrize("make", [TokenSampling, MinPSampling])
def test_a_negative_size_is_refused(make: type[TokenSampling] | type[MinPSampling], size: int) -> None:
    with pytest.raises(SettingError, match=rf"^exploration\.largest_support={size} is negative; .*\.$"):
        make(largest_support=size)


def test_nothing_is_recorded_where_nothing_is_cut() -> None:
    strategies = (TokenSampling(largest_support=128), MinPSampling(0.0, largest_support=128))
    assert [one.support for one in strategies] == [0, 0]
    assert [one.unrecorded() for one in strategies] == list(strategies)
    assert [one.step(LOGITS, step_context(ROWS)).support for one in strategies] == [None, None]
    widths = (TokenSampling(20, largest_support=9), TokenSampling(5, largest_support=9), MinPSampling(0.1, 7))
    assert [one.support for one in widths] == [20, 9, 7]


class Wrong(TokenSampling):
    """Returns something else than it declares."""

    def __init__(self, width: int, change) -> None:
        super().__init__(top_k=3, largest_support=3)
        object.__setattr__(self, "width_of_it", width)
        object.__setattr__(self, "change", change)

    @property
    def support(self) -> int:
        return self.width_of_it

    def step(self, logits: Tensor, ctx) -> Step:
        step = TokenSampling(top_k=3, largest_support=3).step(logits, ctx)
        return step._replace(support=self.change(step.support))


@pytest.mark.parametrize(
    ("width", "change", "said"),
    [
        (3, lambda support: None, "support=3 is declared and step returns none"),
        (0, lambda support: support, "the class declares none"),
        (4, lambda support: support, r"support of shape \[2, 3\] instead of \[2, 4\]"),
        (3, lambda support: support.int(), "dtype int32 instead of int64"),
        (3, lambda support: support + 50, "outside the 24 of the vocabulary"),
        (3, lambda support: support[:, :1].expand(-1, 3), "have an id twice"),
        (3, lambda support: support.masked_fill(support == support[:, :1], NO_ID), "without the token"),
    ],
)
def test_the_dry_run_refuses_what_cannot_be_recorded(width: int, change, said: str) -> None:
    table = torch.randn(24, 4, generator=torch.Generator().manual_seed(0))
    with pytest.raises(SettingError, match=said):
        bind(Wrong(width, change), table, Vocabulary(24, frozenset(), {}))


def test_sampling_that_stops_to_truncate_says_so_row_by_row() -> None:
    keys = step_context(3).keys
    limits = Limits(keys, torch.tensor([9, 4, 3]), torch.tensor([False, True, False]))
    strategy = MixUntil(TokenSampling(top_k=2, largest_support=2), limits)
    assert (strategy.truncates, strategy.support) == (True, 2)
    tables = strategy.prepare(torch.zeros(VOCABULARY, 4), Vocabulary(VOCABULARY, frozenset(), {}))
    step = strategy.step(LOGITS[:3], replace(step_context(3), tables=tables))
    assert step.support is not None
    assert [bool((row == NO_ID).all()) for row in step.support] == [False, False, True]


def test_equal_sets_at_each_temperature() -> None:
    """The set is that of the logits over the temperature; hotter, min-p keeps more."""
    sizes = []
    for temperature in (0.5, 1.0, 2.0):
        step, _ = decide(MinPSampling(0.1, largest_support=EVERY), LOGITS, temperature, step_context(ROWS), None)
        assert sets(step) == slow_sets(MinPSampling(0.1), LOGITS / temperature)
        sizes.append(sum(len(one) for one in sets(step)))
    assert all(one < other for one, other in pairwise(sizes))
