"""What a step may draw and record."""

from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate

import pytest
import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration, Step, StepContext
from ngrpo.exploration.random import uniform
from ngrpo.exploration.token import TokenSampling


def context(rows: int, position: int = 5, end_ids: tuple[int, ...] = ()) -> StepContext:
    return StepContext(
        keys=torch.arange(rows) * 1_000_003,
        positions=torch.full((rows,), position),
        ended=torch.zeros(rows, dtype=torch.bool),
        end_ids=torch.tensor(end_ids, dtype=torch.int64),
        tables={},
    )


def chi_square(tokens: Tensor, probs: list[float]) -> float:
    counts = torch.bincount(tokens, minlength=len(probs)).tolist()
    expected = [len(tokens) * p for p in probs]
    return sum((n - e) ** 2 / e for n, e in zip(counts, expected, strict=True) if e > 0)


def test_sampling_follows_the_softmax() -> None:
    weights = [1, 20, 3, 0, 7, 0, 40, 5, 9, 15]
    logits = torch.tensor(weights).log().repeat(20_000, 1) + 3.0
    tokens = context(20_000).sample(logits)
    probs = [w / sum(weights) for w in weights]
    # 99.9th percentile with 7 degrees of freedom; zero-probability tokens never come.
    assert chi_square(tokens, probs) < 24.3
    assert set(tokens.tolist()) == {i for i, w in enumerate(weights) if w}


def test_sampling_is_inversion_of_the_token_stream() -> None:
    ctx = context(300)
    logits = torch.randn(300, 11, generator=torch.Generator().manual_seed(0))
    draws = uniform(ctx.keys, ctx.positions, "token").tolist()
    for token, draw, row in zip(ctx.sample(logits).tolist(), draws, logits.double().softmax(-1).tolist(), strict=True):
        assert sum(row[:token]) <= draw < sum(row[: token + 1])


def test_sampling_tells_unlikely_tokens_apart() -> None:
    """Between cumulative probabilities of 1/2 and 1, float32 lies on a grid four times as wide as these tokens."""
    many = context(20_000)
    draws = uniform(many.keys, many.positions, "token")
    hits = ((draws > 0.5) & (draws < 0.5 + 2**-8)).nonzero()[:6, 0]
    ctx = replace(many, keys=many.keys[hits], positions=many.positions[hits], ended=many.ended[hits])
    logits = torch.cat([torch.tensor([0.5]), torch.full((2**18,), 2.0**-26), torch.tensor([0.5 - 2**-8])]).log()
    cdf = list(accumulate(logits.double().softmax(-1).tolist()))
    expected = [bisect_right(cdf, draw) for draw in draws[hits].tolist()]
    assert ctx.sample(logits.repeat(6, 1)).tolist() == expected
    assert all(0 < token <= 2**18 for token in expected)


def test_uniform_draws_a_value_a_row_or_a_row_and_candidate() -> None:
    ctx = context(4)
    candidates = torch.tensor([[3, 1], [0, 2], [9, 9], [1, 3]])
    table = ctx.uniform("noise", candidates)
    assert ctx.uniform("noise").shape == (4,)
    for row in range(4):
        for column in range(2):
            alone = uniform(ctx.keys[row], ctx.positions[row], "noise", candidates[row, column])
            assert table[row, column].item() == alone.item()


def test_is_end() -> None:
    tokens = torch.tensor([1, 5, 7, 5])
    assert context(4, end_ids=(5, 7)).is_end(tokens).tolist() == [False, True, True, True]
    assert context(4).is_end(tokens).tolist() == [False] * 4


def test_plain_step_mixes_nothing() -> None:
    step = Step.plain(torch.tensor([4, 2]))
    assert step.token.tolist() == [4, 2]
    assert step.mixed.tolist() == [False, False]
    assert step.ids.shape == step.weights.shape == (2, 0)


def test_default_log_prob_is_the_tokens() -> None:
    logits = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    scores = TokenSampling().log_prob(logits, Step.plain(torch.tensor([5, 0, 2])))
    for row, token in enumerate([5, 0, 2]):
        expected = float(logits[row, token]) - float(logits[row].exp().sum().log())
        assert scores[row].item() == pytest.approx(expected, abs=1e-6)


def test_a_strategy_needs_a_step() -> None:
    with pytest.raises(TypeError, match="step"):
        Exploration()  # type: ignore[abstract]
