"""The head in chunks gives what all logits at once give, values and gradients."""

import json
import weakref

import pytest
import torch
from places import ROOT
from torch import Tensor
from torch.nn.functional import linear

from ngrpo.modeling import compiled, fused_scores
from ngrpo.modeling.fused_scores import fused_token_scores
from ngrpo.modeling.head import LogitMap

ROWS, WIDTH, VOCABULARY = 11, 6, 17


MAPS = [LogitMap(), LogitMap(scale=0.37), LogitMap(cap=1.6), LogitMap(scale=2.5, cap=4.0)]


def slow(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    tokens: Tensor,
    temperature: float,
    logit_map: LogitMap = MAPS[0],
):
    logits = linear(hidden, weight, bias) * logit_map.scale
    if logit_map.cap is not None:
        logits = torch.tanh(logits / logit_map.cap) * logit_map.cap
    log_probs = (logits.float() / temperature).log_softmax(-1)
    return log_probs[torch.arange(len(tokens)), tokens], -(log_probs.exp() * log_probs).sum(-1)


def leaves(dtype: torch.dtype, bias: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()

    tokens = torch.randint(VOCABULARY, (ROWS,), generator=generator)
    return normal(ROWS, WIDTH), normal(VOCABULARY, WIDTH), normal(VOCABULARY) if bias else None, tokens


def gradients(scores: tuple[Tensor, Tensor], parts: list[Tensor], both: bool = True) -> list[Tensor]:
    weights = torch.linspace(-1, 1, ROWS)
    loss = (weights * scores[0]).sum() + (weights.cos() * scores[1]).sum() * both
    return list(torch.autograd.grad(loss, parts))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 11, 100])
@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("logit_map", MAPS, ids=str)
def test_chunks_give_values_and_gradients_of_all_logits_at_once(bias, rows, entropy, logit_map):
    hidden, weight, offset, tokens = leaves(torch.float32, bias)
    parts = [part for part in (hidden, weight, offset) if part is not None]
    expected = slow(hidden, weight, offset, tokens, 0.7, logit_map)
    scores = fused_token_scores(hidden, weight, offset, tokens, 0.7, rows, logit_map)
    torch.testing.assert_close(scores, expected, atol=1e-6, rtol=1e-6)
    for ours, theirs in zip(gradients(scores, parts, entropy), gradients(expected, parts, entropy), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


def test_gradients_are_those_of_finite_differences():
    hidden, weight, offset, tokens = leaves(torch.float64, True)
    # In float32 inside: coarse steps.
    for index in range(2):
        torch.autograd.gradcheck(
            lambda h, w, b, index=index: fused_token_scores(h, w, b, tokens, 1.3, 4)[index].double(),
            (hidden, weight, offset),
            eps=1e-2,
            atol=2e-2,
            rtol=2e-2,
        )


def test_golden_gradient_of_the_entropy():
    """Logits are the states themselves, of a head that is the identity."""
    vector = json.loads((ROOT / "tests/vectors2.json").read_text())["adaptive_entropy"]["outputs"]
    logits = torch.tensor([[1.0, 0.2, -0.5]], requires_grad=True)
    _, entropy = fused_token_scores(logits, torch.eye(3), None, torch.tensor([0]), 1.0, rows=1)
    (gradient,) = torch.autograd.grad(entropy.sum(), logits)
    expected = vector["entropy gradient wrt logits, z = (1, .2, -.5)"]
    assert gradient[0].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("logit_map", MAPS, ids=str)
def test_half_precision_rounds_what_the_model_rounds(logit_map):
    hidden, weight, _, tokens = leaves(torch.bfloat16, False)
    scores = fused_token_scores(hidden, weight, None, tokens, 1.0, 4, logit_map)
    assert scores[0].dtype == scores[1].dtype == torch.float32
    torch.testing.assert_close(scores, slow(hidden, weight, None, tokens, 1.0, logit_map), atol=1e-6, rtol=1e-6)
    assert [g.dtype for g in gradients(scores, [hidden, weight])] == [torch.bfloat16] * 2


def test_autocast_makes_the_products_in_its_dtype_and_keeps_float32_gradients():
    hidden, weight, _, tokens = leaves(torch.float32, False)
    with torch.autocast("cpu", torch.bfloat16):
        scores = fused_token_scores(hidden, weight, None, tokens, 1.0, 4)
        expected = slow(hidden, weight, None, tokens, 1.0)
    torch.testing.assert_close(scores, expected, atol=1e-6, rtol=1e-6)
    for ours, theirs in zip(gradients(scores, [hidden, weight]), gradients(expected, [hidden, weight]), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, atol=2e-2, rtol=2e-2)


def test_a_frozen_head_gets_no_gradient():
    hidden, weight, _, tokens = leaves(torch.float32, False)
    frozen = weight.detach()
    ours = fused_token_scores(hidden, frozen, None, tokens, 1.0, 4)[0].sum()
    theirs = slow(hidden, frozen, None, tokens, 1.0)[0].sum()
    torch.testing.assert_close(torch.autograd.grad(ours, hidden), torch.autograd.grad(theirs, hidden))


def test_all_logits_are_never_held(monkeypatch):
    from ngrpo.modeling import fused_scores

    largest: list[int] = []
    alive: list[int] = []
    made: list[weakref.ref] = []
    product_of = fused_scores._product

    def watched(*arguments):
        alive.append(sum(one() is not None for one in made))
        product = product_of(*arguments)
        largest.append(len(product))
        made.append(weakref.ref(product))
        return product

    monkeypatch.setattr(fused_scores, "_product", watched)
    hidden, weight, _, tokens = leaves(torch.float32, False)
    fused_token_scores(hidden, weight, None, tokens, 1.0, 4)[0].sum().backward()
    assert largest == [4, 4, 3] * 2
    assert alive == [0] * 6  # a chunk is gone before the next one is made


@pytest.mark.slow
def test_compiled_for_a_gpu_it_computes_the_same(monkeypatch):
    """Compiled for this CPU here, once for all numbers of rows."""
    hidden, weight, offset, tokens = leaves(torch.float32, True)
    expected = fused_token_scores(hidden, weight, offset, tokens, 0.7, 4, MAPS[-1])
    wanted = gradients(expected, [hidden, weight, offset])
    monkeypatch.setattr(fused_scores, "compiled_for", lambda logits, function, fixed: compiled._compiled(function))
    scores = fused_token_scores(hidden, weight, offset, tokens, 0.7, 4, MAPS[-1])
    torch.testing.assert_close(scores, expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(gradients(scores, [hidden, weight, offset]), wanted, atol=1e-6, rtol=1e-5)
