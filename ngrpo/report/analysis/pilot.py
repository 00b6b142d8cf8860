"""The pilot study of N-GRPO (arXiv 2606.10768, figure 1): where perturbed embeddings lead.

Isotropic noise moves an embedding anywhere, a mixture with its neighbours stays among them. Each perturbed vector is
decoded back to the nearest token; it has left the semantic neighbourhood of its anchor if that token is neither the
anchor nor one of the anchor's nearest tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.density import table_rms
from ngrpo.exploration.neighbor_table import SIMILARITIES, nearest_rows
from ngrpo.report.analysis.single_token_words import EmbeddedVocabulary

_BLOCK = 256
"""Vectors decoded at once."""


@dataclass(frozen=True)
class PilotSettings:
    """How the study is made.

    Attributes:
        scales: standard deviations of the noise, each over the RMS of the table's entries (STHT has 0.33).
        k: tokens of a mixture, the anchor included.
        neighborhood: k', how many nearest tokens make up the neighbourhood of an anchor.
        samples: perturbed vectors an anchor.
        metric: similarity, for neighbours and for decoding; see `SIMILARITIES`.
        seed: of noise and weights.
    """

    scales: tuple[float, ...] = (0.33, 4.0, 8.0)
    k: int = 3
    neighborhood: int = 10
    samples: int = 200
    metric: str = "cosine"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("k", "neighborhood", "samples"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name}={getattr(self, name)} is too small; choose 1 or more.")
        if not all(scale > 0 for scale in self.scales):
            raise SettingError(f"scale={list(self.scales)} must be positive; STHT has 0.33.")


@dataclass(frozen=True)
class Perturbed:
    """T anchors perturbed n times.

    Attributes:
        name: how.
        points: float32 [T, n, d].
        nearest: the token that each is decoded to; int64 [T, n].
        left: whether that is outside the anchor's neighbourhood; bool [T, n].
        moved: distance from the anchor's row, over that row's length; float32 [T, n].
    """

    name: str
    points: Tensor
    nearest: Tensor
    left: Tensor
    moved: Tensor


def pilot(vocabulary: EmbeddedVocabulary, anchors: Tensor, settings: PilotSettings) -> list[Perturbed]:
    """Returns the anchors under noise of each scale, then under mixing.

    Args:
        vocabulary: table and texts.
        anchors: tokens; int64 [T].
        settings: of the study.

    Raises:
        SettingError: the table has too few rows for it.
    """
    embedding = vocabulary.embedding
    width = max(settings.k, settings.neighborhood + 1)
    candidates = int((~vocabulary.excluded).sum())
    if candidates <= width:
        raise SettingError(
            f"k={settings.k} and neighborhood={settings.neighborhood} need more than the {candidates} rows that may "
            "be neighbours; lower them."
        )
    near = nearest_rows(embedding, anchors, width, settings.metric, vocabulary.excluded).long()
    generator = torch.Generator().manual_seed(settings.seed)
    rms = float(table_rms(embedding, vocabulary.size))
    perturbations = {
        f"noise {scale:g}": noisy(embedding[anchors], scale * rms, settings.samples, generator)
        for scale in settings.scales
    }
    perturbations[f"mixing, k={settings.k}"] = mixed(embedding[near[:, : settings.k]], settings.samples, generator)
    return [
        _judged(name, points, near[:, : settings.neighborhood + 1], vocabulary, settings.metric)
        for name, points in perturbations.items()
    ]


def noisy(rows: Tensor, sigma: float, samples: int, generator: torch.Generator) -> Tensor:
    """Adds N(0, sigma^2 I) to rows [T, d]; [T, samples, d]."""
    noise = torch.randn(len(rows), samples, rows.shape[1], generator=generator)
    return rows[:, None] + sigma * noise


def mixed(rows: Tensor, samples: int, generator: torch.Generator) -> Tensor:
    """Mixes each anchor with its neighbours; rows [T, k, d], anchor first, to [T, samples, d].

    Outside a sentence there are no logits to take the weights from. They are drawn evenly from all weights of which the
    anchor's is the largest, as it is in a rollout, where the anchor is the most likely token.
    """
    count, k, _ = rows.shape
    raw = torch.empty(count, samples, k).exponential_(generator=generator)
    weights = raw / raw.sum(-1, keepdim=True)
    largest = weights.argmax(-1, keepdim=True)
    first = weights[..., :1].clone()
    weights[..., :1] = weights.gather(-1, largest)
    weights.scatter_(-1, largest, torch.where(largest == 0, weights[..., :1], first))
    return weights @ rows


def decoded(points: Tensor, embedding: Tensor, metric: str, excluded: Tensor) -> Tensor:
    """Returns the nearest token of each vector, the smaller id among equals; float [N, d] to int64 [N]."""
    out = []
    for start in range(0, len(points), _BLOCK):
        block = points[start : start + _BLOCK]
        similarity = SIMILARITIES[metric](block, embedding).masked_fill(excluded, -torch.inf)
        out.append(similarity.argmax(-1))
    return torch.cat(out)


def _judged(name: str, points: Tensor, near: Tensor, vocabulary: EmbeddedVocabulary, metric: str) -> Perturbed:
    nearest = decoded(points.flatten(0, 1), vocabulary.embedding, metric, vocabulary.excluded).view(points.shape[:2])
    left = (nearest[..., None] != near[:, None, :]).all(-1)
    rows = vocabulary.embedding[near[:, :1]]
    return Perturbed(name, points, nearest, left, (points - rows).norm(dim=-1) / rows.norm(dim=-1))


def principal_plane(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Returns mean [d] and the two directions of most variance [d, 2] of rows [N, d], signs fixed."""
    mean = rows.mean(0)
    axes = torch.linalg.svd(rows - mean, full_matrices=False).Vh[:2].T
    largest = axes.abs().argmax(0, keepdim=True)
    return mean, axes * axes.gather(0, largest).sign()
