"""The head on recorded supports gives what the whole softmax, cut and renormalised, gives: values and gradients."""

from dataclasses import replace

import pytest
import torch
from made_rollouts import rollout
from test_fused_scores import MAPS, ROWS, VOCABULARY, gradients, leaves
from torch import Tensor
from torch.nn.functional import linear

from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling import compiled, fused_scores
from ngrpo.modeling.fused_scores import fused_token_scores
from ngrpo.modeling.head import LogitMap
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel, entropy_of
from ngrpo.types.support import NO_ID, Support


def supports_of(tokens: Tensor, sizes: list[int] | None = None) -> Tensor:
    """Sets of 1 to V ids with the token of each row in them, in any order."""
    generator = torch.Generator().manual_seed(5)
    rows = torch.full((len(tokens), VOCABULARY), NO_ID)
    for row, token in enumerate(tokens.tolist()):
        size = (1 + row * (VOCABULARY - 1) // (len(tokens) - 1)) if sizes is None else sizes[row]
        others = [v for v in torch.randperm(VOCABULARY, generator=generator).tolist() if v != token][: size - 1]
        place = row % size
        rows[row, :size] = torch.tensor([*others[:place], token, *others[place:]])
    return rows


def slow(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    tokens: Tensor,
    tau: float,
    logit_map: LogitMap,
    support: Tensor,
) -> tuple[Tensor, Tensor]:
    """All probabilities, those outside of the set put to 0, divided by their sum; a row after the other."""
    logits = logit_map(linear(hidden, weight, bias)).float() / tau
    log_probs, entropies = [], []
    for row, token, ids in zip(logits, tokens.tolist(), support.tolist(), strict=True):
        kept = torch.zeros(VOCABULARY)
        kept[[v for v in ids if v != NO_ID]] = 1.0
        probs = row.softmax(-1) * kept
        probs = probs / probs.sum()
        log_probs.append(probs[token].log())
        inside = probs[kept > 0]
        entropies.append(-(inside * inside.log()).sum())
    return torch.stack(log_probs), torch.stack(entropies)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 100])
@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("logit_map", MAPS, ids=str)
def test_chunks_give_values_and_gradients_of_the_renormalised_softmax(bias, rows, entropy, logit_map):
    hidden, weight, offset, tokens = leaves(torch.float32, bias)
    parts = [part for part in (hidden, weight, offset) if part is not None]
    support = supports_of(tokens)
    expected = slow(hidden, weight, offset, tokens, 0.7, logit_map, support)
    scores = fused_token_scores(hidden, weight, offset, tokens, 0.7, rows, logit_map, support=support)
    torch.testing.assert_close(scores, expected, atol=2e-6, rtol=1e-5)
    for ours, theirs in zip(gradients(scores, parts, entropy), gradients(expected, parts, entropy), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=2e-5)


def test_gradients_are_those_of_finite_differences():
    hidden, weight, offset, tokens = leaves(torch.float64, True)
    support = supports_of(tokens)
    for index in range(2):
        torch.autograd.gradcheck(
            lambda h, w, b, index=index: fused_token_scores(h, w, b, tokens, 1.3, 4, support=support)[index].double(),
            (hidden, weight, offset),
            eps=1e-2,
            atol=2e-2,
            rtol=2e-2,
        )


def test_a_set_of_one_is_certain_and_moves_nothing():
    hidden, weight, _, tokens = leaves(torch.float32, False)
    support = supports_of(tokens, [1] * ROWS)
    scores = fused_token_scores(hidden, weight, None, tokens, 0.7, 4, support=support)
    assert [one.tolist() for one in scores] == [[0.0] * ROWS] * 2
    assert [float(g.abs().max()) for g in gradients(scores, [hidden, weight])] == [0.0, 0.0]


def test_the_whole_vocabulary_as_a_set_is_the_whole_softmax():
    hidden, weight, _, tokens = leaves(torch.float32, False)
    support = supports_of(tokens, [VOCABULARY] * ROWS)
    scores = fused_token_scores(hidden, weight, None, tokens, 0.7, 4, support=support)
    expected = fused_token_scores(hidden, weight, None, tokens, 0.7, 4)
    torch.testing.assert_close(scores, expected, atol=1e-6, rtol=1e-6)
    for ours, theirs in zip(gradients(scores, [hidden, weight]), gradients(expected, [hidden, weight]), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rounds_what_the_model_rounds(dtype):
    hidden, weight, _, tokens = leaves(dtype, False)
    support = supports_of(tokens)
    scores = fused_token_scores(hidden, weight, None, tokens, 1.0, 4, support=support)
    expected = slow(hidden, weight, None, tokens, 1.0, MAPS[0], support)
    assert scores[0].dtype == scores[1].dtype == torch.float32
    torch.testing.assert_close(scores, expected, atol=2e-6, rtol=1e-5)
    ours, theirs = (gradients(one, [hidden, weight]) for one in (scores, expected))
    assert [g.dtype for g in ours] == [dtype] * 2
    torch.testing.assert_close(ours, theirs, atol=2e-2, rtol=2e-2)


def test_exact_scores_are_those_of_any_width():
    """The engine has room for more ids than the trainer's widest set has, and the same bits must come out."""
    hidden, weight, _, tokens = leaves(torch.float32, False)
    support = supports_of(tokens, [1 + row % 6 for row in range(ROWS)])
    expected = slow(hidden, weight, None, tokens, 0.7, MAPS[0], support)
    scores = fused_token_scores(hidden, weight, None, tokens, 0.7, 4, exact=True, support=support)
    narrow = fused_token_scores(hidden, weight, None, tokens, 0.7, 3, exact=True, support=support[:, :6])
    torch.testing.assert_close(scores, expected, atol=2e-6, rtol=1e-5)
    assert all(one.equal(other) for one, other in zip(scores, narrow, strict=True))


def test_entropy_beside_densities_is_that_of_the_set_where_there_is_one():
    logits = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    support = torch.tensor([[4, 1], [6, NO_ID], [NO_ID, NO_ID]])
    made = entropy_of(logits, support)
    assert made.tolist() == pytest.approx(
        [float(entropy_of(logits[0, [4, 1]][None])), 0.0, float(entropy_of(logits)[2])], abs=1e-6
    )


@pytest.mark.slow
def test_compiled_for_a_gpu_it_computes_the_same(monkeypatch):
    """Compiled for this CPU here."""
    hidden, weight, offset, tokens = leaves(torch.float32, True)
    support = supports_of(tokens)
    expected = fused_token_scores(hidden, weight, offset, tokens, 0.7, 4, MAPS[-1], support=support)
    wanted = gradients(expected, [hidden, weight, offset])
    monkeypatch.setattr(fused_scores, "compiled_for", lambda logits, function, fixed: compiled._compiled(function))
    scores = fused_token_scores(hidden, weight, offset, tokens, 0.7, 4, MAPS[-1], support=support)
    torch.testing.assert_close(scores, expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(gradients(scores, [hidden, weight, offset]), wanted, atol=1e-6, rtol=1e-5)


def test_rows_of_the_whole_vocabulary_are_scored_beside_rows_with_sets(tiny_source):
    model = ScoringModel(tiny_source.load())
    first, second = rollout([5, 6, 7], [8, 9, 10]), rollout([7, 8], [11, 12])
    sets = torch.tensor([[8, 20, 21], [NO_ID] * 3, [10, NO_ID, NO_ID]])
    some = replace(first, support=Support.of(sets))
    strategy = TokenSampling(top_k=3, largest_support=3)
    model.head_rows = 2
    cut, whole = (model(pack([one, second]), 0.8, strategy) for one in (some, first))
    assert cut.log_prob[[1, 3, 4]].tolist() == pytest.approx(whole.log_prob[[1, 3, 4]].tolist(), abs=1e-6)
    assert cut.entropy[[1, 3, 4]].tolist() == pytest.approx(whole.entropy[[1, 3, 4]].tolist(), abs=1e-6)
    certain, larger = cut.log_prob[2].item(), (cut.log_prob[0] - whole.log_prob[0]).item()
    assert certain == 0.0
    assert larger > 0.1
    gradient = torch.autograd.grad(cut.log_prob[1] + cut.log_prob[3], model.lm.lm_head.weight)[0]
    expected = torch.autograd.grad(whole.log_prob[1] + whole.log_prob[3], model.lm.lm_head.weight)[0]
    torch.testing.assert_close(gradient, expected, atol=1e-6, rtol=1e-5)


def test_packed_supports_are_those_of_generated_tokens():
    first, second = rollout([5, 6], [8, 9, 10]), rollout([7], [11])
    sets = torch.tensor([[NO_ID] * 2, [9, 4], [10, NO_ID]])
    batch = pack([replace(first, support=Support.of(sets), prefix_length=1), second])
    assert batch.support is not None
    assert batch.support.tolist() == [[9, 4], [10, NO_ID], [NO_ID, NO_ID]]
    assert batch.partly_whole
    assert batch.steps().support is batch.support
    assert batch.to(torch.device("cpu")).support.equal(batch.support)
    assert not pack([replace(first, support=Support.of(sets), prefix_length=1)]).partly_whole
    assert pack([first, second]).support is None
    assert pack([replace(first, support=Support.whole(3)), second]).support is None
