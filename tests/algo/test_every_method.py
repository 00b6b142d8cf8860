"""What must hold for every part of an algorithm that conf/ names, found there and nowhere listed."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from over_ranks import alone
from places import ROOT
from torch import Tensor

from ngrpo.algo.aggregate import BatchTotals
from ngrpo.algo.best import with_best
from ngrpo.algo.clip import Surrogate
from ngrpo.algo.correction import Mask, Reject
from ngrpo.algo.credit import ScoredBatch
from ngrpo.algo.groups import Groups
from ngrpo.algo.loss_terms import LossInputs
from ngrpo.algo.marks import inner, is_marked, reads_log_prob
from ngrpo.algo.policy_loss import Algorithm
from ngrpo.algo.token_weight import ClipCov, ForkingTokens, WeighedTokens
from ngrpo.algo.within_group import LearningSelection
from ngrpo.config.instantiate import build
from ngrpo.config.schema import register
from ngrpo.entrypoints.algorithm_trial import try_algorithm
from ngrpo.entrypoints.validation import check_algorithm, check_clip, check_group
from ngrpo.errors import SettingError
from ngrpo.rollout.settings import RolloutSettings

GROUPS = (
    "advantage",
    "ratio",
    "clip",
    "aggregate",
    "kl",
    "credit",
    "token_weight",
    "correction",
    "within_group",
    "bonus",
    "adaptive_entropy",
)
EACH_SUM_IS_0 = {"virtual_best": False}
"""Of group-relative advantages; the virtual response of one has the rest."""


def names(group: str) -> list[str]:
    return sorted(p.stem for p in (ROOT / "conf/algo" / group).glob("*.yaml") if p.stem != "custom")


@cache
def parts() -> dict[str, dict[str, Any]]:
    """Every part by group and name, as a run would build it; the n-th of each group in the n-th configuration."""
    register()
    found: dict[str, dict[str, Any]] = {group: {} for group in GROUPS}
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        for chosen in itertools.zip_longest(*(names(group) for group in GROUPS)):
            picked = {group: name for group, name in zip(GROUPS, chosen, strict=True) if name is not None}
            config = compose("train", overrides=["algo=grpo", *(f"algo/{g}={name}" for g, name in picked.items())])
            algorithm = with_best(build(config.algo), (0.0, 1.0))
            for group, name in picked.items():
                found[group][name] = getattr(algorithm, group)
    return found


def base() -> Algorithm:
    of = parts()
    functions = {"advantage": "group_standardised", "ratio": "token", "clip": "clipped_surrogate", "kl": "k3"}
    return Algorithm(
        **{group: of[group][name] for group, name in functions.items()}, aggregate=of["aggregate"]["token_mean"]
    )


def biting(weighting: Any) -> Any:
    """The token weights with shares and bounds that act on a few tokens."""
    known = {field.name for field in dataclasses.fields(weighting)}
    return replace(weighting, **{name: value for name, value in {"share": 0.4, "low": -9.0}.items() if name in known})


REWARDS = torch.tensor(
    [[1.0, 0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0, 1.0], [0.0, 1.0, 0.0, 0.0, 0.0]],
    dtype=torch.float64,
)


def one_group(rewards: list[float]) -> Tensor:
    return torch.tensor([rewards], dtype=torch.float64)


@pytest.mark.parametrize("name", names("advantage"))
def test_an_advantage_knows_no_order_and_no_unscored_response(name: str) -> None:
    advantage = parts()["advantage"][name]
    found = advantage(REWARDS)
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(advantage(REWARDS[:, order]), found[:, order], equal_nan=True)
    gap = torch.cat((REWARDS, torch.full((4, 1), torch.nan, dtype=torch.float64)), dim=-1)
    torch.testing.assert_close(advantage(gap)[:, :-1], found, equal_nan=True)
    assert advantage(gap)[:, -1].isnan().all()
    assert advantage(torch.full((1, 5), torch.nan)).isnan().all()


@pytest.mark.parametrize("name", names("advantage"))
def test_advantages_of_a_group_sum_to_0_where_they_are_relative(name: str) -> None:
    advantage = parts()["advantage"][name]
    if not getattr(inner(advantage), "group_relative", False):
        assert name not in EACH_SUM_IS_0
        return
    sums = advantage(REWARDS).sum(-1)
    if EACH_SUM_IS_0.get(name, True):
        torch.testing.assert_close(sums, torch.zeros_like(sums), rtol=0, atol=1e-9)
        assert (advantage(REWARDS)[1:3] == 0).all()  # exactly, where all rewards are equal
    else:
        assert (sums <= 1e-9).all()
        assert sums.min() < -0.1


@pytest.mark.parametrize("name", names("advantage"))
def test_the_scale_of_rewards_changes_advantages_in_proportion_or_not_at_all(name: str) -> None:
    made = parts()["advantage"][name]
    function = inner(made)

    def advantage(rewards: Tensor, largest: float) -> Tensor:
        given = {"best": largest} if getattr(function, "compares_with_best", False) else {}
        found: Tensor = partial(made, **given)(rewards)
        return found

    once, eight = advantage(REWARDS, 1.0), advantage(8 * REWARDS, 8.0)
    alike = [torch.allclose(eight, factor * once, rtol=1e-4, equal_nan=True) for factor in (1.0, 8.0)]
    assert any(alike)


FAR = torch.tensor([[0.125, 0.375, 0.6875, 0.9375], [0.5, 0.0625, torch.nan, 0.25], [0.75, 0.75, 0.75, 0.75]])
"""Rewards whose digits float32 has beside 10^6."""


@pytest.mark.parametrize("name", names("advantage"))
@pytest.mark.parametrize(
    "rewards",
    [FAR + 1e6, FAR - 1e6, 1e30 * FAR, 1e-8 * FAR, FAR],
    ids=["far above 0", "far below 0", "huge", "tiny", "usual"],
)
def test_an_advantage_in_float32_is_that_in_float64_whatever_the_size_of_rewards(name: str, rewards: Tensor) -> None:
    function = inner(parts()["advantage"][name])
    if getattr(function, "not_negative", False):
        rewards = rewards.abs()
    given = {"best": 2e6} if getattr(function, "compares_with_best", False) else {}
    advantage = partial(parts()["advantage"][name], **given)
    torch.testing.assert_close(
        advantage(rewards).double(), advantage(rewards.double()), rtol=1e-6, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("name", names("credit"))
def test_a_credit_that_compares_responses_does_so_in_float64(name: str) -> None:
    raw, near = replace(base(), advantage=parts()["advantage"]["raw"]), scored(torch.float64)
    rewards = near.rewards + 1e6 + torch.linspace(0, 0.6875, 12, dtype=torch.float64).mul(16).round() / 16
    near = replace(near, rewards=rewards, values=near.values.fill_(1e6), bootstrap=None, old_log_prob=None)
    credit = parts()["credit"][name]
    if credit.needs_old_log_prob:
        near = replace(near, old_log_prob=scored(torch.float64).old_log_prob)
    coarse = replace(near, rewards=rewards.float(), values=near.values.float())
    found, expected = (replace(raw, credit=credit).assign(one).advantages.double() for one in (coarse, near))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", names("advantage"))
def test_a_group_of_one_is_refused_or_has_a_finite_advantage(name: str) -> None:
    advantage = parts()["advantage"][name]
    algorithm, one = replace(base(), advantage=advantage), RolloutSettings(group_size=1)
    if getattr(inner(advantage), "group_relative", False):
        with pytest.raises(SettingError, match=r"^rollout\.group_size=1 leaves nothing to compare with"):
            check_group(algorithm, one)
    else:
        check_group(algorithm, one)
    assert not advantage(one_group([1.0])).isinf().any()
    assert advantage(one_group([torch.nan])).isnan().all()


EXTREMES = torch.tensor([-20.0, -5.0, -0.5, -1e-6, 0.0, 1e-6, 0.5, 5.0, 20.0])
LEVELS = torch.tensor([-30.0, -3.0, -0.7, -1e-7, 0.0])


def clipped(name: str, log_ratio: Tensor, advantage: Tensor, log_prob: Tensor) -> Surrogate:
    clip = parts()["clip"][name]
    found: Surrogate = clip(log_ratio, advantage, *((log_prob,) if is_marked(clip, reads_log_prob) else ()))
    return found


@pytest.mark.parametrize("name", names("clip"))
def test_a_clip_is_finite_however_far_the_policy_has_moved(name: str) -> None:
    log_ratio, log_prob = EXTREMES.repeat(len(LEVELS)).requires_grad_(), LEVELS.repeat_interleave(len(EXTREMES))
    advantage = torch.tensor([[1.0], [-2.0], [0.0]]).expand(3, len(log_ratio))
    made = clipped(name, log_ratio, advantage, log_prob)
    assert made.loss.shape == made.clipped.shape == advantage.shape
    for row, sign in enumerate((1, -1, 0)):
        (grad,) = torch.autograd.grad(made.loss[row].sum(), log_ratio, retain_graph=True)
        assert bool(made.loss[row].isfinite().all())
        assert bool(grad.isfinite().all())
        # A positive advantage makes no token less likely, a negative one none likelier, and 0 moves nothing.
        assert bool((grad * sign <= 0).all())
        assert bool((grad == 0).all()) <= (sign == 0)


@pytest.mark.parametrize("name", names("clip"))
@pytest.mark.parametrize("weight", [0.0, 0.25, 3.0])
def test_a_weight_on_the_advantage_is_a_weight_on_the_clip(name: str, weight: float) -> None:
    log_ratio = EXTREMES[1:-1].double()
    log_prob, advantage = torch.full_like(log_ratio, -1.0), torch.tensor([[1.0], [-1.0]]).double().expand(2, 7)
    whole, part = (clipped(name, log_ratio, a, log_prob).loss for a in (advantage, weight * advantage))
    torch.testing.assert_close(part, weight * whole)


@pytest.mark.parametrize("name", names("clip"))
@pytest.mark.parametrize("sign", [1.0, -0.7])
def test_the_gradient_of_a_clip_by_differences(name: str, sign: float) -> None:
    """Of the value or, where that is a weight without gradient times the log ratio, of this with the weight held."""
    log_ratio = torch.linspace(-0.61, 0.63, 24, dtype=torch.float64).requires_grad_()
    advantage, old = torch.full((24,), sign, dtype=torch.float64), torch.full((24,), -1.3, dtype=torch.float64)

    def value(moved: Tensor) -> Tensor:
        made = clipped(name, moved, advantage, (old + moved).detach())
        return made.loss if made.penalty is None else made.loss + made.penalty

    (grad,) = torch.autograd.grad(value(log_ratio).sum(), log_ratio)
    at, step = log_ratio.detach(), 1e-6
    slopes = (value(at + step) - value(at - step)) / (2 * step)
    held = value(at) / at
    assert any(torch.allclose(grad, one, rtol=1e-5, atol=1e-7) for one in (slopes, held))
    (first,) = torch.autograd.grad(value(here := torch.zeros(24, dtype=torch.float64).requires_grad_()).sum(), here)
    torch.testing.assert_close(first, -advantage)  # that of the plain policy gradient, at ratio 1


def batch(seed: int = 0, moved: float = 0.3) -> LossInputs:
    """Four responses to a prompt, the last of them unscored."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor([3, 5, 2, 4])
    old = -2 * torch.rand(14, dtype=torch.float64, generator=generator) - 0.05
    change = moved * torch.randn(14, dtype=torch.float64, generator=generator)
    advantages = torch.tensor([1.0, -0.5, 0.3, torch.nan], dtype=torch.float64).repeat_interleave(lengths)[None]
    entropy = 2 * torch.rand(14, dtype=torch.float64, generator=generator)
    log_prob = (old + change).clamp(max=-1e-3).requires_grad_()
    return LossInputs(log_prob, old, old - 0.1, old + 0.02 * change, entropy, advantages, lengths)


def weighed(algorithm: Algorithm, given: LossInputs) -> tuple[LossInputs, BatchTotals]:
    """As the training step weighs and counts the tokens of a batch."""
    draws = torch.linspace(0.05, 0.95, len(given.log_prob))
    if algorithm.weighs_batch:
        tokens = WeighedTokens(given.old_log_prob, given.entropy, given.advantages, draws, alone)
        given = replace(given, token_weight=algorithm.weigh(tokens, given.log_mismatch, given.lengths))
    counted = given.kept if given.token_weight is None else given.token_weight.counted & given.kept
    sequences = sum(bool(part.any()) for part in counted.split(given.lengths.tolist()))
    return given, BatchTotals(sequences, int(counted.sum()))


@pytest.mark.parametrize("name", names("token_weight"))
@pytest.mark.parametrize("clip", ["unclipped", "clipped_surrogate", "sapo"])
def test_the_gradient_of_a_weighed_loss_by_differences(name: str, clip: str) -> None:
    weighting = biting(parts()["token_weight"][name])
    algorithm = replace(base(), clip=parts()["clip"][clip], token_weight=weighting)
    given, totals = weighed(algorithm, batch())

    def value(log_prob: Tensor) -> Tensor:
        return algorithm.loss(replace(given, log_prob=log_prob), totals).loss

    (grad,) = torch.autograd.grad(value(given.log_prob), given.log_prob)
    at, step = given.log_prob.detach(), 1e-6
    moves = step * torch.eye(len(at), dtype=torch.float64)
    slopes = torch.stack([(value(at + move) - value(at - move)) / (2 * step) for move in moves])
    torch.testing.assert_close(grad, slopes, rtol=1e-5, atol=1e-8)
    assert (grad[-4:] == 0).all()
    plain = replace(base(), clip=parts()["clip"][clip])
    (even,) = torch.autograd.grad(plain.loss(batch_of := batch(), weighed(plain, batch_of)[1]).loss, batch_of.log_prob)
    assert torch.allclose(grad, even) == (name == "even")


LEAVES_OUT = {
    "counts": ("token_weight", ForkingTokens(0.4)),
    "weights of 0": ("token_weight", ClipCov(0.4, -9.0, 9.0)),
    "mask": ("correction", Mask(cap=1.05, floor=0.95)),
    "rejection": ("correction", Reject(cap=1.05, floor=0.95)),
}
"""What tells the tokens of a response apart, so that some of them are not learned from."""


@pytest.mark.parametrize("name", names("ratio"))
@pytest.mark.parametrize("what", LEAVES_OUT)
def test_a_token_that_is_left_out_learns_nothing_whatever_the_ratio_is_of(name: str, what: str) -> None:
    group, part = LEAVES_OUT[what]
    given = batch(moved=0.1)  # no bound of a ratio acts
    mismatch = torch.tensor([0.2, 0.0] * 7, dtype=torch.float64)
    given = replace(given, rollout_log_prob=given.old_log_prob - mismatch)
    changed: dict[str, Any] = {group: part}
    algorithm = replace(base(), clip=parts()["clip"]["unclipped"], ratio=parts()["ratio"][name], **changed)
    given, totals = weighed(algorithm, given)
    weight = given.kept * algorithm.correction(given.log_mismatch, given.lengths).weight
    if given.token_weight is not None:
        weight = weight * given.token_weight.counted * given.token_weight.weight[0]
    assert 0 < int((weight > 0).sum()) < int(given.kept.sum())
    (grad,) = torch.autograd.grad(algorithm.loss(given, totals).loss, given.log_prob)
    assert ((grad != 0) == (weight > 0)).all()


@pytest.mark.parametrize("name", names("token_weight"))
def test_token_weights_know_no_order_no_excluded_token_and_no_sign(name: str) -> None:
    weighting, given = biting(parts()["token_weight"][name]), batch()
    draws = torch.linspace(0.05, 0.95, 14)

    def made(order: Tensor, changed: float = 0.0) -> list[Tensor]:
        excluded = given.advantages.isnan()[0]
        log_prob, entropy = (
            (values + changed * excluded)[order] for values in (given.log_prob.detach(), given.entropy)
        )
        tokens = WeighedTokens(log_prob, entropy, given.advantages[:, order], draws[order], alone)
        found = weighting(tokens)
        penalty = torch.zeros(14) if found.penalty is None else found.penalty
        assert (found.weight >= 0).all()
        kept = tokens.kept
        counts = (found.counted & kept).double()
        return [found.weight.expand(1, 14)[0] * kept, counts, penalty.double() * kept]

    straight, order = torch.arange(14), torch.randperm(14, generator=torch.Generator().manual_seed(1))
    for one, permuted, other in zip(made(straight), made(order), made(straight, 7.0), strict=True):
        torch.testing.assert_close(permuted, one[order])
        torch.testing.assert_close(other, one)


@pytest.mark.parametrize("name", names("token_weight"))
def test_token_weights_of_nothing_and_of_equal_tokens_are_finite(name: str) -> None:
    weighting = parts()["token_weight"][name]
    for advantages in (torch.full((1, 6), torch.nan), torch.zeros(1, 6), torch.full((1, 6), 0.3)):
        tokens = WeighedTokens(torch.full((6,), -0.5), torch.zeros(6), advantages, torch.linspace(0.1, 0.9, 6), alone)
        found = weighting(tokens)
        assert found.weight.isfinite().all()
        assert found.counted.shape == (6,)
        torch.testing.assert_close(found.weight, torch.ones_like(found.weight))
        assert found.penalty is None or not found.penalty.any()


def scored(dtype: torch.dtype = torch.float32) -> ScoredBatch:
    """Three prompts with four responses each, of which one is unscored and one truncated."""
    rewards = torch.tensor([1.0, 0.0, torch.nan, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0], dtype=dtype)
    lengths = torch.tensor([1, 3, 2, 4] * 3)
    count = int(lengths.sum())
    old = -torch.rand(count, dtype=dtype, generator=torch.Generator().manual_seed(4)) - 0.1
    return ScoredBatch(
        Groups.of([5] * 4 + [6] * 4 + [7] * 4), rewards, torch.arange(12) % 3, lengths, torch.arange(12) == 7, alone,
        old_log_prob=old, ref_log_prob=old - 0.1, values=torch.zeros(count, dtype=dtype),
    )  # fmt: skip


@pytest.mark.parametrize("name", names("credit"))
@pytest.mark.parametrize("relative", ["raw", "group_standardised"])
def test_a_truncated_response_has_no_advantage_at_any_token_where_that_is_asked_for(name: str, relative: str) -> None:
    """Whatever the credit makes of rewards; with "zero" it counts in what it is compared with, else not even there."""
    algorithm = replace(base(), advantage=parts()["advantage"][relative], credit=parts()["credit"][name])
    made = replace(scored(torch.float64), truncated=torch.tensor([True] + [False] * 6 + [True] + [False] * 4))
    silent = made.truncated.repeat_interleave(made.lengths)
    unscored = replace(made, rewards=made.rewards.masked_fill(made.truncated, torch.nan))
    for choice, compared in (("zero", made), ("zero_unscored", unscored)):
        found = replace(algorithm, truncated=choice).assign(made).advantages
        assert (found[:, silent] == 0).all()
        torch.testing.assert_close(found[:, ~silent], algorithm.assign(compared).advantages[:, ~silent], equal_nan=True)


def combinations() -> Iterator[dict[str, str]]:
    """Every advantage, clip, token weight and aggregate; the other parts in turn, so that each meets all of them."""
    crossed, others = ("advantage", "clip", "token_weight", "aggregate"), ("ratio", "credit", "correction", "kl")
    turns = {group: itertools.cycle(names(group)) for group in others}
    for number, chosen in enumerate(itertools.product(*(names(group) for group in crossed))):
        if number and number % 7 == 0:  # else cycles of common length would keep step with the product
            next(turns["ratio"]), next(turns["credit"]), next(turns["correction"])
        yield dict(zip(crossed, chosen, strict=True)) | {group: next(turn) for group, turn in turns.items()}


def composed(chosen: dict[str, str]) -> Algorithm:
    made: dict[str, Callable[..., Any]] = {group: parts()[group][name] for group, name in chosen.items()}
    algorithm = Algorithm(**made)
    check_algorithm(algorithm)
    check_clip(algorithm)
    check_group(algorithm, RolloutSettings(group_size=4))
    return algorithm


def step_of(algorithm: Algorithm) -> tuple[Tensor, Tensor]:
    """Loss and gradient of a step on all tokens, off-policy."""
    made = scored()
    advantages = algorithm.assign(made).advantages
    assert made.old_log_prob is not None
    moved = 0.4 * torch.randn(len(made.old_log_prob), generator=torch.Generator().manual_seed(5))
    log_prob = (made.old_log_prob + moved).clamp(max=-1e-3).requires_grad_()
    given = LossInputs(
        log_prob, made.old_log_prob, made.ref_log_prob, made.old_log_prob + 0.1 * moved, moved.abs(), advantages,
        made.lengths,
    )  # fmt: skip
    given, totals = weighed(algorithm, given)
    loss = algorithm.loss(given, totals).loss
    (grad,) = torch.autograd.grad(loss, log_prob)
    return loss, grad


def test_every_combination_takes_a_finite_step_or_is_refused_in_a_sentence() -> None:
    refused: dict[str, int] = {}
    moving = total = 0
    for chosen in combinations():
        total += 1
        try:
            algorithm = composed(chosen)
        except SettingError as error:
            sentence = str(error)
            assert sentence.startswith("algo."), (chosen, sentence)
            assert sentence.endswith("."), (chosen, sentence)
            refused[sentence.split("=")[0]] = refused.get(sentence.split("=")[0], 0) + 1
            continue
        loss, grad = step_of(algorithm)
        assert bool(loss.isfinite()), chosen
        assert bool(grad.isfinite().all()), chosen
        moving += bool(grad.any())
    assert total == len(names("advantage")) * len(names("clip")) * len(names("token_weight")) * len(names("aggregate"))
    assert set(refused) <= {"algo.credit", "algo.clip"}
    assert moving > 0.6 * (total - sum(refused.values()))


def test_combinations_pass_the_trial_call() -> None:
    """A share of them, since a trial is made of many calls."""
    for chosen in itertools.islice(combinations(), 0, None, 23):
        try:
            algorithm = composed(chosen)
        except SettingError:
            continue
        try_algorithm(algorithm, 4)


@pytest.mark.parametrize("name", names("within_group"))
def test_a_selection_keeps_rewards_or_excludes_them_whatever_the_order(name: str) -> None:
    chosen = parts()["within_group"][name]
    learns = isinstance(chosen, LearningSelection)
    select = (lambda rewards, lengths: chosen(rewards, lengths, rewards)) if learns else chosen
    rewards, lengths = one_group([1.0, torch.nan, 0.0, 1.0, 0.5]), one_group([5, 1, 4, 3, 2])
    kept = select(rewards, lengths)
    assert bool((kept.isnan() | (kept == rewards)).all())
    assert kept[0, 1].isnan()
    order = torch.tensor([4, 2, 0, 1, 3])
    torch.testing.assert_close(select(rewards[:, order], lengths[:, order]), kept[:, order], equal_nan=True)
    assert select(one_group([torch.nan] * 3), one_group([1, 2, 3])).isnan().all()
    assert select(one_group([1.0]), one_group([3])).tolist() == [[1.0]]


@pytest.mark.parametrize("name", names("correction"))
def test_corrections_are_bounded_for_any_mismatch(name: str) -> None:
    correction = parts()["correction"][name]
    mismatch = torch.tensor([0.0, -90.0, 90.0, torch.inf, -torch.inf, torch.nan, 1e-4, 0.3])
    made = correction(mismatch, torch.tensor([1, 2, 2, 1, 2]))
    assert bool(made.weight.isfinite().all())
    assert bool((made.weight >= 0).all())
    alike = correction(torch.zeros(4), torch.tensor([3, 1]))
    assert alike.weight.tolist() == [1.0] * 4
    assert not alike.bounded.any()


@pytest.mark.parametrize("name", names("ratio"))
def test_ratios_are_0_of_no_change_and_bounded_for_any(name: str) -> None:
    algorithm = replace(base(), ratio=parts()["ratio"][name])
    lengths, old = torch.tensor([3, 1, 2]), torch.tensor([-0.5, -90.0, -1e-3, -2.0, -60.0, -0.1])
    advantages = torch.tensor([[1.0, 1.0, 1.0, -1.0, 0.5, 0.5]])
    same = algorithm.bounded_ratio(old.clone().requires_grad_(), old, lengths, advantages).log_ratio
    assert not same.detach().any()
    for moved in (torch.zeros(6), torch.full((6,), -500.0)):
        new = moved.requires_grad_()
        found = algorithm.bounded_ratio(new, old, lengths, advantages).log_ratio
        assert float(found.detach().abs().max()) <= 20.0
        (grad,) = torch.autograd.grad(found.exp().sum(), new)
        assert bool(grad.isfinite().all())


@pytest.mark.parametrize("name", names("bonus"))
def test_bonuses_know_no_order_and_no_missing_answer(name: str) -> None:
    keys, answers = [1, 2, 1, 1, 2, 3], ["7", "7", "3", "7.0", None, "9"]
    order = [4, 0, 5, 2, 1, 3]

    def twice(rows: list[int]) -> Tensor:
        bonus = deepcopy(parts()["bonus"][name])
        for _ in range(2):  # the second time with a history
            found = bonus([keys[row] for row in rows], [answers[row] for row in rows], lambda pairs: [pairs])
        return found

    straight, permuted = twice(list(range(6))), twice(order)
    torch.testing.assert_close(permuted, straight[order])
    assert straight.isfinite().all()
    assert straight[4] == 0.0
    assert straight[0] == straight[3] != straight[2]
    empty = deepcopy(parts()["bonus"][name])([], [], lambda pairs: [pairs])
    assert empty.tolist() == []


@pytest.mark.parametrize("name", names("adaptive_entropy"))
def test_entropy_coefficients_stay_finite_and_not_negative(name: str) -> None:
    coefficient = deepcopy(parts()["adaptive_entropy"][name])
    assert coefficient.weight == 0.0  # of the first step
    for entropy in (0.0, 1e-9, 0.1, 50.0, float("nan"), float("inf"), *([0.0] * 500)):
        coefficient.update(entropy)
        assert 0.0 <= coefficient.weight < 10.0
    other = deepcopy(parts()["adaptive_entropy"][name])
    other.load_state_dict(coefficient.state_dict())
    assert other.weight == coefficient.weight > 0
