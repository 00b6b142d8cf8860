"""The figure of the README: differences of the leaderboard's arms to plain GRPO in its settings, as an SVG.

Written to ``docs/assets/results.svg`` by ``python docs/reference_pages/result_figure.py``.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT)]

from ngrpo.study.arm_summary import ArmSummary, summaries  # noqa: E402
from ngrpo.study.leaderboard.files import read_setting  # noqa: E402
from ngrpo.study.statistics import Mean  # noqa: E402

SETTINGS = ("countdown", "word_problems")
FIGURE = ROOT / "docs/assets/results.svg"

_WIDTH, _TOP, _ROW = 760, 58, 24
_INK, _GREY, _CLEAR = "#263238", "#90a4ae", "#c62828"


@dataclass(frozen=True)
class Panel:
    """One axis of differences.

    Attributes:
        metric: the figure that is compared.
        left: x of the axis' lower end, in pixels.
        width: of the axis, in pixels.
        ticks: labelled values; the first and the last are its ends.
    """

    metric: str
    left: int
    width: int
    ticks: Sequence[float]

    def x(self, value: float) -> float:
        """Returns where a value lies, in pixels."""
        low, high = self.ticks[0], self.ticks[-1]
        return self.left + self.width * (value - low) / (high - low)


PANELS = (
    Panel("mean@1", 180, 260, (-0.08, -0.04, 0.0, 0.04)),
    Panel("pass@64", 500, 240, (-0.04, -0.02, 0.0, 0.02, 0.04, 0.06)),
)


def figure() -> str:
    """Returns the SVG: a row for each arm, a dot for the mean over seeds, a line for its 95 % interval."""
    lines, y = list[str](), _TOP
    for setting in SETTINGS:
        arms = [arm for arm in summaries(read_setting(ROOT / "docs/results" / setting)) if arm.differences is not None]
        lines.append(f'<text x="12" y="{y + _ROW // 2 + 4}" font-weight="600">{setting}</text>')
        lines += [mark for row, arm in enumerate(arms, start=1) for mark in _row(arm, y + _ROW * row + _ROW // 2)]
        y += _ROW * (len(arms) + 1)
    height = y + 34
    axes = [mark for panel in PANELS for mark in _axis(panel, y)]
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        "<title>The leaderboard: difference to plain GRPO, with 95 % intervals over seeds</title>",
        f"<style>text {{ font: 12.5px system-ui, sans-serif; fill: {_INK} }} .n {{ text-anchor: middle }}</style>",
        f'<rect width="{_WIDTH}" height="{height}" rx="8" fill="#fff"/>',
        '<text x="12" y="24">Difference to plain GRPO (token_grpo), same seeds; 95 % intervals, not corrected</text>',
    ]
    return "\n".join([*head, *axes, *lines, "</svg>", ""])


def _axis(panel: Panel, bottom: int) -> list[str]:
    middle = panel.left + panel.width / 2
    lines = [f'<text class="n" x="{middle:g}" y="{_TOP - 10}">{panel.metric.capitalize()}</text>']
    for value in panel.ticks:
        x, colour = panel.x(value), "#eceff1" if value else _INK
        lines.append(f'<path d="M{x:.1f} {_TOP} V{bottom}" stroke="{colour}"/>')
        lines.append(f'<text class="n" x="{x:.1f}" y="{bottom + 18}">{value:{"+" if value else ""}g}</text>')
    return lines


def _row(arm: ArmSummary, y: int) -> list[str]:
    assert arm.differences is not None
    lines = [f'<text x="12" y="{y + 4}">{arm.arm} ({arm.seeds})</text>']
    return lines + [mark for panel in PANELS for mark in _interval(panel, arm.differences[panel.metric], y)]


def _interval(panel: Panel, mean: Mean, y: int) -> list[str]:
    colour = _CLEAR if mean.low > 0 or mean.high < 0 else _GREY
    return [
        f'<path d="M{panel.x(mean.low):.1f} {y} H{panel.x(mean.high):.1f}" stroke="{colour}" stroke-width="3"/>',
        f'<circle cx="{panel.x(mean.value):.1f}" cy="{y}" r="4.5" fill="{colour}"/>',
    ]


if __name__ == "__main__":
    FIGURE.write_text(figure(), encoding="utf-8")
