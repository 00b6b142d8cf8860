"""What a step may draw and record."""

import pytest
import torch
from contexts import step_context
from torch import Tensor

from ngrpo.exploration.base import Exploration, Step
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gaussian_top_k import GaussianTopK
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.random import gumbel, uniform
from ngrpo.exploration.token import TokenSampling


def chi_square(tokens: Tensor, probs: list[float]) -> float:
    counts = torch.bincount(tokens, minlength=len(probs)).tolist()
    expected = [len(tokens) * p for p in probs]
    return sum((n - e) ** 2 / e for n, e in zip(counts, expected, strict=True) if e > 0)


def test_sampling_follows_the_softmax() -> None:
    weights = [1, 20, 3, 0, 7, 0, 40, 5, 9, 15]
    logits = torch.tensor(weights).log().repeat(20_000, 1) + 3.0
    tokens = step_context(20_000).sample(logits)
    probs = [w / sum(weights) for w in weights]
    # 99.9th percentile with 7 degrees of freedom; zero-probability tokens never come.
    assert chi_square(tokens, probs) < 24.3
    assert set(tokens.tolist()) == {i for i, w in enumerate(weights) if w}


def test_sampling_is_the_gumbel_max_of_each_row() -> None:
    ctx = step_context(50)
    logits = torch.randn(50, 11, generator=torch.Generator().manual_seed(0))
    for row, token in enumerate(ctx.sample(logits).tolist()):
        scores = [float(logits[row, v] + gumbel(ctx.keys[row], ctx.positions[row], "token", v)) for v in range(11)]
        assert scores[token] == max(scores)


def test_a_tail_of_a_large_vocabulary_is_drawn_as_often_as_it_should() -> None:
    """A quarter of the mass lies on 2^16 tokens, each near 4e-6."""
    tail = 2**16
    logits = torch.cat([torch.tensor([0.75]), torch.full((tail,), 0.25 / tail)]).log().repeat(1000, 1)
    tokens = step_context(1000).sample(logits)
    share = float((tokens > 0).double().mean())
    assert abs(share - 0.25) < 4 * (0.25 * 0.75 / 1000) ** 0.5
    assert len(set(tokens[tokens > 0].tolist())) > 200


def test_uniform_draws_a_value_a_row_or_a_row_and_candidate() -> None:
    ctx = step_context(4)
    candidates = torch.tensor([[3, 1], [0, 2], [9, 9], [1, 3]])
    table = ctx.uniform("noise", candidates)
    assert ctx.uniform("noise").shape == (4,)
    for row in range(4):
        for column in range(2):
            alone = uniform(ctx.keys[row], ctx.positions[row], "noise", candidates[row, column])
            assert table[row, column].item() == alone.item()


def test_is_end() -> None:
    tokens = torch.tensor([1, 5, 7, 5])
    assert step_context(4, end_ids=(5, 7)).is_end(tokens).tolist() == [False, True, True, True]
    assert step_context(4).is_end(tokens).tolist() == [False] * 4


def test_plain_step_mixes_nothing() -> None:
    step = Step.plain(torch.tensor([4, 2]))
    assert step.token.tolist() == [4, 2]
    assert step.mixed.tolist() == [False, False]
    assert step.ids.shape == step.weights.shape == (2, 0)


def test_default_log_prob_is_the_tokens() -> None:
    logits = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    scores = TokenSampling().log_prob(logits, Step.plain(torch.tensor([5, 0, 2])), step_context(3))
    for row, token in enumerate([5, 0, 2]):
        expected = float(logits[row, token]) - float(logits[row].exp().sum().log())
        assert scores[row].item() == pytest.approx(expected, abs=1e-6)


def test_a_strategy_needs_a_step() -> None:
    with pytest.raises(TypeError, match="step"):
        Exploration()  # type: ignore[abstract]


@pytest.mark.parametrize(
    ("strategy", "mixes", "sums_rows"),
    [
        (TokenSampling(), False, True),
        (NeighborMixing(), True, True),
        (GumbelSoftThinking(), True, True),
        (GaussianSoftTokens(), True, False),
        (GaussianTopK(), True, False),
        (HybridReasoning(), True, False),
    ],
)
def test_engines_are_told_how_vectors_are_made(strategy: Exploration, mixes: bool, sums_rows: bool) -> None:
    assert (strategy.mixes, strategy.sums_rows) == (mixes, sums_rows)


def test_a_strategy_with_inputs_of_its_own_is_no_sum_of_rows() -> None:
    class Halved(NeighborMixing):
        def inputs(self, embed, step, ctx, parameters):
            return super().inputs(embed, step, ctx, parameters) / 2

    assert not Halved().sums_rows


def test_the_table_is_there_for_those_who_declare_it(make_engine, bound, requests, sampling) -> None:
    seen: dict[bool, set[int]] = {}

    def watching(declared: bool) -> TokenSampling:
        class Watching(TokenSampling):
            reads_embedding = declared

            def step(self, logits, ctx):
                seen.setdefault(declared, set()).add(len(ctx.embedding))
                return super().step(logits, ctx)

        return Watching()

    engine = make_engine()
    for declared in (True, False):
        engine.generate(requests[:2], sampling, bound(engine, watching(declared)))
    assert seen == {True: {64}, False: {0}}
