import json
from math import comb
from pathlib import Path

import pytest
import torch

from ngrpo.evaluation.estimators import pass_at_k

GOLDEN = json.loads((Path(__file__).parents[1] / "vectors.json").read_text())["pass_at_k"]


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
