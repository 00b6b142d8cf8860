import json
from math import comb

import pytest
import torch
from places import ROOT

from ngrpo.evaluation.estimators import area_under, majority_at_k, pass_at_k

GOLDEN = json.loads((ROOT / "tests/vectors.json").read_text())["pass_at_k"]


@pytest.mark.parametrize(("n", "c", "k"), GOLDEN["inputs"]["triples_n_c_k"])
def test_golden(n: int, c: int, k: int) -> None:
    expected = GOLDEN["outputs"][f"{n},{c},{k}"]["unbiased"]
    assert pass_at_k(n, c, k).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("k", [1, 3, 12])
def test_equals_binomials_over_a_tensor_of_counts(k: int) -> None:
    slow = [1 - comb(12 - c, k) / comb(12, k) for c in range(13)]
    found = pass_at_k(12, torch.arange(13), k)
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx(slow, abs=1e-12)


def test_is_the_mean_over_all_subsets() -> None:
    samples = torch.tensor([1, 0, 0, 1, 0])
    subsets = torch.combinations(samples, 3).amax(-1).double()
    assert pass_at_k(5, 2, 3).item() == pytest.approx(subsets.mean().item())


@pytest.mark.parametrize("k", [0, 9])
def test_k_outside_the_samples_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"pass@{k} needs 1 <= k <= n, but there are n=8"):
        pass_at_k(8, 3, k)


@pytest.mark.parametrize("c", [-1, 9])
def test_impossible_counts_are_refused(c: int) -> None:
    with pytest.raises(ValueError, match="between 0 and n=8"):
        pass_at_k(8, torch.tensor([3, c]), 2)


def votes(text: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Letters are answers, R is the right one, a dot is none."""
    numbers = [-1 if letter == "." else ord(letter) for letter in text]
    return torch.tensor(numbers), torch.tensor([letter == "R" for letter in text])


@pytest.mark.parametrize(
    ("answers", "k", "expected"),
    [
        ("RRab", 4, 1.0),  # most votes
        ("Raab", 4, 0.0),
        ("Rabc", 4, 1 / 4),  # a tie of four
        ("RRaa", 4, 1 / 2),  # a tie of two, two votes each
        ("RRaabb", 6, 1 / 3),
        ("R...", 4, 1.0),  # no answer is no vote
        ("....", 4, 0.0),
        ("aaRR", 2, 1 / 2),  # two groups
        ("RaRR", 2, 3 / 4),
        ("RRa", 2, 1.0),  # the third is not used
        ("Ra.R", 1, 1 / 2),
    ],
)
def test_majority_by_hand(answers: str, k: int, expected: float) -> None:
    assert majority_at_k(*votes(answers), k).item() == pytest.approx(expected)


def test_majority_of_several_problems_is_that_of_each() -> None:
    texts = ["RRab", "Rabc", "...a", "aaRR"]
    one_by_one = [majority_at_k(*votes(text), 2).item() for text in texts]
    both = [torch.stack(parts) for parts in zip(*map(votes, texts), strict=True)]
    assert majority_at_k(*both, 2).tolist() == pytest.approx(one_by_one)


@pytest.mark.parametrize("k", [0, 5])
def test_majority_of_more_than_there_are_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"maj@{k} needs 1 <= k <= n, but there are n=4"):
        majority_at_k(*votes("RRab"), k)


def test_area_is_over_the_logarithm_and_between_the_ends() -> None:
    rising = torch.tensor([[0.0, 0.5, 1.0], [0.3, 0.3, 0.3]])
    assert area_under((1, 2, 4), rising).tolist() == pytest.approx([0.5, 0.3])
    # The step from 1 to 4 is two octaves wide, that from 4 to 8 one.
    assert area_under((1, 4, 8), torch.tensor([0.0, 0.6, 1.0])).item() == pytest.approx((2 * 0.3 + 0.8) / 3)
    assert area_under((1,), torch.tensor([0.7])).item() == pytest.approx(0.7)
