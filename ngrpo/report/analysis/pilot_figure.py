"""The figure of the pilot study, and its numbers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from ngrpo.report.analysis.pilot import Perturbed, PilotSettings, principal_plane
from ngrpo.report.analysis.single_token_words import EmbeddedVocabulary
from ngrpo.utils.sanitize import visible

_DRAWN = 40
"""Vectors drawn of an anchor in a panel."""

_LISTED = 5
"""Most frequent tokens outside the neighbourhood that the numbers list."""


def numbers(
    vocabulary: EmbeddedVocabulary, anchors: Tensor, perturbations: Sequence[Perturbed], settings: PilotSettings
) -> dict[str, Any]:
    """Returns what the study found, as JSON: how often each anchor's vectors left its neighbourhood, and where to."""
    return {
        "settings": asdict(settings),
        "left": {one.name: float(one.left.double().mean()) for one in perturbations},
        "moved": {one.name: float(one.moved.mean()) for one in perturbations},
        "tokens": [
            {
                "token": vocabulary.text(anchor),
                "id": anchor,
                "left": {one.name: float(one.left[row].double().mean()) for one in perturbations},
                "left_for": {one.name: _frequent(vocabulary, one.nearest[row][one.left[row]]) for one in perturbations},
            }
            for row, anchor in enumerate(anchors.tolist())
        ],
    }


def _frequent(vocabulary: EmbeddedVocabulary, tokens: Tensor) -> dict[str, int]:
    return {vocabulary.text(token): count for token, count in Counter(tokens.tolist()).most_common(_LISTED)}


def pilot_figure(vocabulary: EmbeddedVocabulary, anchors: Tensor, perturbations: Sequence[Perturbed]) -> Figure:
    """Returns a panel for each perturbation, all in the plane of most variance of the anchors and what they became.

    Dots stayed in the neighbourhood of their anchor, crosses left it; some carry the token they are decoded to.
    """
    seen = torch.cat(
        [vocabulary.embedding[anchors], *(vocabulary.embedding[torch.unique(one.nearest)] for one in perturbations)]
    )
    mean, axes = principal_plane(seen)
    # Not pyplot: it keeps every figure and asks for a display.
    figure = Figure(figsize=(4.2 * len(perturbations), 4.4), layout="constrained")
    panels = figure.subplots(1, len(perturbations), squeeze=False, sharex=True, sharey=True)[0]
    at = (vocabulary.embedding[anchors] - mean) @ axes
    for panel, one in zip(panels, perturbations, strict=True):
        _draw(panel, vocabulary, one, (one.points - mean) @ axes)
        for row, anchor in enumerate(anchors.tolist()):
            panel.annotate(_label(vocabulary, anchor), tuple(at[row].tolist()), weight="bold", fontsize=10, zorder=4)
        panel.set_title(f"{one.name}: {float(one.left.double().mean()):z.1%} left", fontsize=11)
        panel.set(xlabel="first component", xticks=[], yticks=[])
    panels[0].set_ylabel("second component")
    return figure


def _draw(panel: Axes, vocabulary: EmbeddedVocabulary, one: Perturbed, at: Tensor) -> None:
    colours = matplotlib.color_sequences["tab10"]
    for row in range(len(at)):
        colour = colours[row % len(colours)]
        points, left = at[row, :_DRAWN], one.left[row, :_DRAWN]
        stayed, gone = points[~left], points[left]
        panel.scatter(stayed[:, 0].tolist(), stayed[:, 1].tolist(), s=9, color=colour, alpha=0.6, linewidths=0)
        panel.scatter(gone[:, 0].tolist(), gone[:, 1].tolist(), s=18, color=colour, marker="x", linewidths=1)
        for place in left.nonzero().flatten().tolist()[:1]:
            label = _label(vocabulary, int(one.nearest[row, place]))
            panel.annotate(label, tuple(points[place].tolist()), fontsize=7, color="0.35", zorder=3)


def _label(vocabulary: EmbeddedVocabulary, token: int) -> str:
    # A dollar sign would start a formula, which may not parse.
    return visible(vocabulary.text(token)).strip().replace("$", r"\$") or repr(vocabulary.text(token))
