"""Compiled strategies decide what plain ones do; one that the compiler fails on runs plainly."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

import pytest
import torch
from contexts import step_context
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch._inductor import config
from torch.fx.experimental.proxy_tensor import make_fx

from ngrpo.exploration.base import Exploration, Step, StepContext
from ngrpo.exploration.gaussian import GaussianSoftTokens
from ngrpo.exploration.gaussian_top_k import GaussianTopK
from ngrpo.exploration.gumbel import GumbelSoftThinking
from ngrpo.exploration.latent_gumbel import LatentGumbel
from ngrpo.exploration.min_p import MinPSampling
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.neighbor_annealed import AnnealedNeighborMixing
from ngrpo.exploration.neighbor_entropy import EntropyNeighborMixing
from ngrpo.exploration.neighbor_selective import SelectiveNeighborMixing
from ngrpo.exploration.runtime import compiled as module
from ngrpo.exploration.runtime.compiled import compiled
from ngrpo.exploration.runtime.decide import decide
from ngrpo.exploration.soft import SoftThinking
from ngrpo.exploration.token import TokenSampling
from ngrpo.exploration.vocabulary import Vocabulary


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_COMPILED", {})
    torch.compiler.reset()


def doubled(strategy: Exploration, values: Tensor, more: float = 1.0) -> Tensor:
    return 2 * values + more


def test_a_failure_of_the_compiler_is_told_once_and_survived() -> None:
    def fail(graph: torch.fx.Graph) -> NoReturn:
        raise ValueError("operand does not dominate this use")

    run, values = compiled(doubled, TokenSampling()), torch.arange(5.0)
    told = r"fails on doubled of TokenSampling.* ValueError: operand does not dominate"
    with config.patch(post_grad_custom_pre_pass=fail), pytest.warns(UserWarning, match=told):
        assert torch.equal(run(values), doubled(TokenSampling(), values))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = compiled(doubled, TokenSampling())(values[:3], 4.0)
    assert torch.equal(again, doubled(TokenSampling(), values[:3], 4.0))


@dataclass(frozen=True)
class Mistaken(Exploration):
    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        raise NotImplementedError


def test_a_mistake_of_the_strategy_is_not_taken_for_the_compilers() -> None:
    def wrong(strategy: Exploration, values: Tensor) -> Tensor:
        return values @ values.new_ones(len(values) + 1)

    with pytest.warns(UserWarning, match="fails on wrong"), pytest.raises(RuntimeError, match="size"):
        compiled(wrong, Mistaken())(torch.ones(3))


def test_what_compiles_runs_compiled() -> None:
    run = compiled(doubled, TokenSampling())
    assert torch.equal(run(torch.arange(5.0), 3.0), doubled(TokenSampling(), torch.arange(5.0), 3.0))
    assert compiled(doubled, TokenSampling()).func is run.func  # type: ignore[attr-defined]
    assert run.func.run is not run.func.plain  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Shifting(Exploration):
    by: float = field(default=1.0, repr=False)

    def step(self, logits: Tensor, ctx: StepContext) -> Step:
        raise NotImplementedError


class Written(Shifting):
    """As a newcomer writes it, without a text of its own."""

    __repr__ = object.__repr__


def shifted(strategy: Shifting, values: Tensor) -> Tensor:
    return values + strategy.by


@pytest.mark.parametrize("kind", [Shifting, Written])
def test_settings_that_the_text_does_not_show_are_those_of_the_strategy_that_is_run(kind: type[Shifting]) -> None:
    values = torch.arange(5.0)
    for by in (1.0, 2.0):
        assert torch.equal(compiled(shifted, kind(by))(values), values + by)


def test_copies_of_a_strategy_share_what_was_compiled() -> None:
    counter, values = CompileCounter(), torch.arange(5.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", partial(torch.compile, backend=counter))
        patch.setattr(module, "_OPTIONS", None)
        for kind in (Shifting, Written):
            for _ in range(3):
                compiled(shifted, kind())(values)
    assert len(module._COMPILED) == counter.frame_count == 2


def test_a_class_that_is_defined_anew_is_compiled_anew() -> None:
    """As when the cell of a notebook is run again."""

    def defined(factor: float) -> Exploration:
        @dataclass(frozen=True)
        class Mine(Exploration):
            def step(self, logits: Tensor, ctx: StepContext) -> Step:
                return Step.plain((factor * logits).long())

        return Mine()

    def first_token(strategy: Exploration, logits: Tensor) -> Tensor:
        return strategy.step(logits, None).token  # type: ignore[arg-type]

    for factor in (2.0, 3.0):
        strategy = defined(factor)
        assert torch.equal(compiled(first_token, strategy)(torch.arange(4.0)), (factor * torch.arange(4.0)).long())


STRATEGIES = [
    TokenSampling(),
    TokenSampling(top_p=0.9),
    TokenSampling(top_k=50, top_p=0.9),
    TokenSampling(top_p=0.9, largest_support=0),
    NeighborMixing(rate=0.5),
    AnnealedNeighborMixing(rate_start=0.5, schedule_iterations=10),
    EntropyNeighborMixing(rate_min=0.2, rate_max=0.8),
    SelectiveNeighborMixing(rate=0.8, max_cosine=0.9),
    SoftThinking(rate=0.5),
    GaussianSoftTokens(),
    GumbelSoftThinking(),
    LatentGumbel(top_k=4),
    LatentGumbel(top_p=1.0, one_sided=False),
    GaussianTopK(),
    MinPSampling(),
    MinPSampling(largest_support=0),
]


def settings_of(strategy: Exploration) -> str:
    """Names the strategy and what it does not have by default."""
    return repr(strategy) if strategy != type(strategy)() else type(strategy).__name__


@pytest.mark.parametrize("strategy", [*STRATEGIES[5:8], LatentGumbel(top_k=4)], ids=lambda one: type(one).__name__)
def test_one_whole_graph_serves_all_iterations(strategy: Exploration) -> None:
    rows, vocabulary = 12, 50
    embedding = torch.randn(vocabulary, 8, generator=torch.Generator().manual_seed(0))
    tables = strategy.prepare(embedding, Vocabulary(vocabulary, frozenset(), {}))
    logits = 3 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(1))
    counter = CompileCounter()
    run = torch.compile(decide, backend=counter, fullgraph=True, dynamic=True)
    for progress in (0, 3, 10, 99):
        context = step_context(rows, torch.arange(rows) + 40, None, (2,), tables, embedding[:0], progress=progress)
        step, _ = run(strategy, logits, 0.8, context, None)
        expected, _ = decide(strategy, logits, 0.8, context, None)
        assert torch.equal(step.mixed, expected.mixed)
        torch.testing.assert_close(step.weights, expected.weights)
    assert counter.frame_count == 1


@pytest.mark.parametrize("strategy", STRATEGIES, ids=settings_of)
def test_no_strategy_has_the_compiler_write_running_sums_or_sort(strategy: Exploration) -> None:
    """It fails on the former for a GPU, and takes minutes for the latter; see `running_sums` and `sorted_rows`."""
    rows, vocabulary = 5, 200
    embedding = torch.randn(vocabulary, 8)
    tables = strategy.prepare(embedding, Vocabulary(vocabulary, frozenset(), {}))
    context = step_context(rows, torch.arange(rows), None, (2,), tables, embedding)
    trace = make_fx(lambda logits: decide(strategy, logits, 0.8, context, None)[1])
    called = {str(node.target) for node in trace(torch.randn(rows, vocabulary)).graph.nodes}
    assert "aten.argmax.default" in called or "aten.topk.default" in called
    assert not [name for name in called - {"ngrpo.sorted_rows.default"} if "cum" in name or "sort" in name]
    assert ("ngrpo.running_sums.default" in called) == (getattr(strategy, "top_p", 1.0) < 1.0)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=settings_of)
def test_whole_numbers_of_a_strategy_are_constants(strategy: Exploration, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler fails on kernels for a GPU whose sizes it keeps open; the vocabulary is larger than each of them."""
    graphs: list[list[torch.fx.Node]] = []
    sizes: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        graphs.append(list(graph.graph.nodes))
        inputs = [node for node in graphs[-1] if node.op == "placeholder"]
        sizes.extend(
            str(n.meta["grapharg"].source) for n in inputs if isinstance(n.meta["example_value"], torch.SymInt)
        )
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    monkeypatch.setattr(module, "_OPTIONS", None)
    tables = strategy.prepare(torch.randn(200, 8), Vocabulary(200, frozenset(), {}))
    for rows in (11, 12):
        context = step_context(rows, torch.arange(rows), None, (2,), tables, torch.randn(200, 8))
        compiled(decide, strategy)(torch.randn(rows, 200), 0.8, context, None)
    assert len(graphs) == 1
    assert sizes
    assert not [size for size in sizes if "'strategy'" in size]
    assert all(isinstance(node.args[1], int) for node in graphs[0] if node.target == "topk")


@pytest.mark.gpu
@pytest.mark.parametrize("vocabulary", [49_152, 151_936])
@pytest.mark.parametrize("temperature", [0.8, 1.0])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=settings_of)
def test_strategies_compile_for_vocabularies_of_real_models(
    strategy: Exploration, temperature: float, vocabulary: int
) -> None:
    torch.manual_seed(0)
    rows = 256
    with torch.device("cuda"):
        embedding = torch.randn(vocabulary, 64)
        tables = strategy.prepare(embedding, Vocabulary(vocabulary, frozenset(), {}))
        ended = [row % 5 == 0 for row in range(rows)]
        context = step_context(rows, torch.arange(rows) + 40, ended, (2,), tables, embedding)
        logits = 3 * torch.randn(rows, vocabulary)
    (step, log_probs), (expected, scores) = (
        run(logits, temperature, context, None) for run in (compiled(decide, strategy), partial(decide, strategy))
    )
    same = step.token == expected.token
    assert same.float().mean() > 0.98  # a draw near the border of two tokens may round to either
    assert torch.equal(step.mixed[same], expected.mixed[same])
    torch.testing.assert_close(log_probs[same], scores[same], atol=1e-4, rtol=1e-4)
