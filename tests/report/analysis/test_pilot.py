"""The pilot study against slow references, and on tables where the answer can be read off."""

import pytest
import torch

from ngrpo.exploration.neighbor_table import SIMILARITIES, build_neighbor_table, nearest_rows
from ngrpo.report.analysis.pilot import PilotSettings, decoded, mixed, noisy, pilot, principal_plane
from ngrpo.report.analysis.single_token_words import EmbeddedVocabulary


class Letters:
    def decode(self, ids: list[int]) -> str:
        return "".join(chr(ord("a") + number) for number in ids)


def vocabulary(embedding: torch.Tensor, excluded: tuple[int, ...] = ()) -> EmbeddedVocabulary:
    mask = torch.zeros(len(embedding), dtype=torch.bool)
    mask[list(excluded)] = True
    return EmbeddedVocabulary(Letters(), embedding, len(embedding), mask)


@pytest.fixture
def table() -> torch.Tensor:
    return torch.randn(40, 6, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("metric", list(SIMILARITIES))
def test_rows_of_the_table_are_those_of_the_whole(table: torch.Tensor, metric: str):
    excluded = torch.arange(40) % 7 == 0
    anchors = torch.tensor([39, 0, 5, 5])
    whole = build_neighbor_table(table, 4, metric, excluded)
    assert torch.equal(nearest_rows(table, anchors, 4, metric, excluded), whole[anchors])


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_decoding_is_the_nearest_row(table: torch.Tensor, metric: str):
    """Across the blocks' border; excluded rows are never chosen."""
    excluded = torch.arange(40) < 3
    points = torch.randn(600, 6, generator=torch.Generator().manual_seed(4))
    found = decoded(points, table, metric, excluded)
    for point, token in zip(points[::50], found[::50].tolist(), strict=True):
        if metric == "l2":
            distances = (table - point).square().sum(-1)
        else:
            distances = -torch.cosine_similarity(table, point[None], dim=-1)
        distances[:3] = torch.inf
        assert token == int(distances.argmin())


def test_noise_has_the_scale_asked_for():
    points = noisy(torch.zeros(2, 1000), 0.5, 50, torch.Generator().manual_seed(0))
    assert points.shape == (2, 50, 1000)
    assert float(points.std()) == pytest.approx(0.5, rel=0.02)


def test_mixtures_are_convex_and_the_anchor_weighs_most():
    """With the unit vectors as rows the points are the weights."""
    weights = mixed(torch.eye(3)[None], 5000, torch.Generator().manual_seed(0))[0]
    assert torch.allclose(weights.sum(-1), torch.ones(5000))
    assert bool((weights >= 0).all())
    assert bool((weights[:, :1] >= weights).all())
    # Uniform on the simplex: the largest of three has mean 11/18, the others share the rest alike.
    assert weights.mean(0).tolist() == pytest.approx([11 / 18, 7 / 36, 7 / 36], abs=0.01)


def test_what_left_is_outside_anchor_and_neighbourhood():
    """Four directions in pairs: 0 and 1 are near each other, so are 2 and 3; 4 is excluded."""
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [-1.0, 0.0]])
    settings = PilotSettings(scales=(0.01, 3.0), k=2, neighborhood=1, samples=300)
    small, large, mixture = pilot(vocabulary(rows, excluded=(4,)), torch.tensor([0, 2]), settings)
    assert [way.name for way in (small, large, mixture)] == ["noise 0.01", "noise 3", "mixing, k=2"]
    assert not small.left.any()
    assert not mixture.left.any()
    assert 0.2 < float(large.left.double().mean()) < 0.7
    for row, near in enumerate(({0, 1}, {2, 3})):
        assert large.left[row].tolist() == [token not in near for token in large.nearest[row].tolist()]
    assert not (large.nearest == 4).any()
    assert torch.allclose(mixture.moved.max(), torch.tensor(0.05), atol=2e-3)  # half of the way to row 1


def test_the_study_is_repeatable(table: torch.Tensor):
    one, two = (pilot(vocabulary(table), torch.tensor([1, 2]), PilotSettings(samples=5)) for _ in range(2))
    assert all(torch.equal(a.points, b.points) for a, b in zip(one, two, strict=True))


def test_the_plane_holds_the_most_variance():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(500, 5, generator=generator) * torch.tensor([0.1, 5.0, 0.1, 2.0, 0.1]) + 7
    mean, axes = principal_plane(rows)
    assert torch.allclose(mean, rows.mean(0))
    assert axes[:, 0].abs().argmax() == 1
    assert axes[:, 1].abs().argmax() == 3
    assert bool((axes.abs().argmax(0) == torch.tensor([1, 3])).all())
    assert float(axes[1, 0]) > 0.9
    assert float(axes[3, 1]) > 0.9
