import json
from collections.abc import Callable

import pytest
import torch
from places import ROOT

from ngrpo.algo import ratio

VECTORS = json.loads((ROOT / "tests/vectors.json").read_text())


def packed(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor([value for row in rows for value in row], dtype=torch.float64)


def golden(name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    inputs = VECTORS[name]["inputs"]
    lengths = torch.tensor([len(row) for row in inputs["logp_new"]])
    return packed(inputs["logp_new"]), packed(inputs["logp_old"]), lengths


def test_token_golden() -> None:
    expected = VECTORS["losses_two_sequences"]["outputs"]["ratios"]
    found = ratio.token(*golden("losses_two_sequences")).exp()
    assert found.tolist() == pytest.approx(packed(expected).tolist(), abs=1e-9)


def test_sequence_golden() -> None:
    first, second = VECTORS["gspo"]["outputs"]["s_i (length-normalised)"]
    found = ratio.sequence(*golden("gspo")).exp()
    assert found.tolist() == pytest.approx([first] * 3 + [second] * 5, abs=1e-9)


@pytest.mark.parametrize("level", [ratio.token, ratio.sequence])
def test_log_ratios_stay_within_twenty(level: Callable[..., torch.Tensor]) -> None:
    log_prob = torch.tensor([0.0, 0.0, -90.0, -90.0])
    found = level(log_prob, log_prob.flip(0), torch.tensor([2, 2]))
    assert found.tolist() == [20.0, 20.0, -20.0, -20.0]
    assert found.exp().isfinite().all()


def test_sequence_of_one_token_is_the_token_ratio() -> None:
    log_prob, old = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -1.0])
    ones = torch.tensor([1, 1])
    assert ratio.sequence(log_prob, old, ones).tolist() == ratio.token(log_prob, old, ones).tolist()


@pytest.mark.parametrize("share", [None, torch.tensor([1.0, 0.5, 0.5, 1.0, 1.0], dtype=torch.float64)])
def test_the_summed_gradient_of_sequence_is_that_of_its_mean(share: torch.Tensor | None) -> None:
    """Summed as the loss does: by the shares of the tokens."""
    log_prob = torch.tensor([-0.5, -0.1, -2.0, -0.7, -0.2], dtype=torch.float64, requires_grad=True)
    old, lengths = torch.full((5,), -0.6, dtype=torch.float64), torch.tensor([2, 3])
    weight = torch.ones(5, dtype=torch.float64) if share is None else share
    found = weight * ratio.sequence(log_prob, old, lengths, share).exp()
    sums = [part.sum() for part in weight.split([2, 3])]
    changes = (weight * (log_prob - old)).split([2, 3])
    means = torch.stack([n * (part.sum() / n).exp() for part, n in zip(changes, sums, strict=True)])
    for one, mean in zip(found.split([2, 3]), means, strict=True):
        (grad,) = torch.autograd.grad(one.sum(), log_prob, retain_graph=True)
        (expected,) = torch.autograd.grad(mean, log_prob, retain_graph=True)
        torch.testing.assert_close(grad, expected)
        torch.testing.assert_close(one.sum(), mean)


def test_sequence_token_has_the_value_and_the_summed_gradient_of_sequence() -> None:
    """With one advantage a sequence, GSPO-token and GSPO have the same gradient."""
    log_prob, old, lengths = golden("gspo")
    found = []
    for function in (ratio.sequence, ratio.sequence_token):
        leaf = log_prob.clone().requires_grad_()
        value = function(leaf, old, lengths)
        weight = torch.tensor([0.5 / 3] * 3 + [-0.25 / 5] * 5, dtype=torch.float64)
        (grad,) = torch.autograd.grad((weight * value.exp()).sum(), leaf)
        found.append((value.detach(), grad))
    torch.testing.assert_close(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])


def test_sequence_token_keeps_the_digits_of_the_sequence_ratio() -> None:
    """Log-probs of -20 and a log ratio of 1e-7: the sum must not be rounded to the digits of the former."""
    old = torch.full((3,), -20.0)
    log_prob = torch.tensor([-20.0, -20.0, -19.999998])
    lengths = torch.tensor([3])
    expected = ratio.sequence(log_prob, old, lengths)
    assert float(expected.abs().max()) > 0
    assert torch.equal(ratio.sequence_token(log_prob, old, lengths), expected)
