"""The rows of the leaderboard: what is shown of an arm, and of a primary comparison."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ngrpo.study.arm_summary import ArmSummary, figures, pairs, summaries
from ngrpo.study.definition import LevelsConfig
from ngrpo.study.markdown_tables import with_interval
from ngrpo.study.primary_family import Comparison
from ngrpo.study.results import AnswerStatistics, Results, strength_name
from ngrpo.study.room import Room
from ngrpo.study.statistics import Mean
from ngrpo.utils.numbers import fixed, significant


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: what is shown.
        number: what is sorted by; None sorts by the text, and last.
    """

    text: str
    number: float | None = None


@dataclass(frozen=True)
class Table:
    """A table with a title.

    Attributes:
        title: above it.
        note: below the title.
        heads: of the columns.
        rows: a cell a column.
    """

    title: str
    note: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]


def setting_table(results: Results) -> Table:
    """Returns a row for each arm of a setting, and one for the untrained model."""
    study, most = results.study, int(results.study["test"]["samples"])
    shown = {
        "mean@1": ("Mean@1", 3),
        f"pass@{min(8, most)}": (f"Pass@{min(8, most)}", 3),
        f"pass@{most}": (f"Pass@{most}", 3),
        "pass_area": ("area", 3),
        "newly_solved": ("newly solved", 3),
        "solutions": (f"solutions in {most}", 2),
        "length": ("length", 1),
        "generated_tokens": ("tokens", 0),
        "seconds/train": ("seconds", 0),
    }
    reference = str(study["reference"])
    differing = [f"pass@{most}", "mean@1", "solutions"]
    against = {arm: found for (arm, _), found in pairs(results).items()}
    heads = [
        "arm",
        "seeds",
        "rate",
        "strength",
        "learned",
        *(head for head, _ in shown.values()),
        *(f"{shown[name][0]} - {reference}" for name in differing),
        f"Pass@{most} - its control",
    ]
    rows = [_row(results, one, shown, differing, against.get(one.arm), most) for one in summaries(results)]
    if results.base is not None:
        base = figures(results.base)
        plain = [_number(base.get(name), digits) for name, (_, digits) in shown.items()]
        rows.insert(0, [Cell("untrained"), *[Cell("")] * 4, *plain, *[Cell("")] * (len(differing) + 1)])
    note = (
        f"{study['test']['problems']} test problems ({study['test']['path']}), {most} samples each at temperature 1; "
        f"{study.get('generated_tokens') or 'no limit of'} generated tokens a run. Means over seeds with 95 % "
        f"t-intervals; differences are paired by seed; * marks those that exclude 0, not corrected. Seeds: finished "
        "and planned. Learned: the interval of Mean@1 is above that of the untrained model. Newly solved: "
        "share of the problems without a right answer before training that have one now."
    )
    return Table(f"Setting {study['name']}", note, heads, rows)


def _row(
    results: Results,
    one: ArmSummary,
    shown: Mapping[str, tuple[str, int]],
    differing: Sequence[str],
    control: Mapping[str, Mean] | None,
    most: int,
) -> list[Cell]:
    tuned = results.tuned.get(one.arm)
    planned = int(results.study["arms"][one.arm]["seeds"])
    strength = "" if tuned is None or tuned.strength is None else strength_name(tuned.strength)
    differences = one.differences or {}
    return [
        Cell(one.arm),
        Cell(f"{one.seeds} of {planned}", one.seeds),
        Cell(significant(one.rate), one.rate),
        Cell(strength),
        Cell(_learned(one.figures["mean@1"], results.base)),
        *(_mean(one.figures.get(name), digits) for name, (_, digits) in shown.items()),
        *(_mean(differences.get(name), 3, signed=True) for name in differing),
        _mean((control or {}).get(f"pass@{most}"), 3, signed=True),
    ]


def _learned(mean: Mean, base: AnswerStatistics | None) -> str:
    """Says whether an arm has learned at all; nothing where that is not known."""
    if base is None or math.isnan(mean.low):
        return ""
    return "yes" if mean.low > figures(base)["mean@1"] else "no"


def levels_table(results: Results) -> Table | None:
    """Returns a row for each candidate of a setting's problems; None where none was measured by the rule."""
    measured = {path: Room.of_metrics(metrics) for path, metrics in results.levels.items()}
    rooms = {path: room for path, room in measured.items() if room is not None}
    if not rooms:
        return None
    rule, most = LevelsConfig(**results.study["levels"]), next(iter(rooms.values())).samples
    rows = [
        [
            Cell(path),
            Cell(fixed(room.mean), room.mean),
            Cell(fixed(room.solved), room.solved),
            Cell(fixed(1 - room.solved), 1 - room.solved),
            Cell("; ".join(room.shortfalls(rule)) or "keeps the rule"),
            Cell("chosen" if path == rule.chosen else ""),
        ]
        for path, room in rooms.items()
    ]
    note = (
        f"The untrained model on {rule.problems} validation problems of each, {most} samples a problem. The rule, "
        f"before any training: Mean@1 from {fixed(rule.low)} to {fixed(rule.high)}, Pass@{most} {fixed(rule.gain)} "
        f"above it, {fixed(rule.unsolved)} of the problems unsolved. Of those that keep it the one nearest to the "
        "middle is chosen."
    )
    heads = ["problems", "Mean@1", f"Pass@{most}", "unsolved", "rule", ""]
    return Table(f"Problems of {results.study['name']}", note, heads, rows)


def primary_table(found: Sequence[Comparison]) -> Table:
    """Returns a row for each comparison of the primary family."""
    heads = ["setting", "comparison", "figure", "seeds", "detectable", "difference", "adjusted p", "verdict"]
    rows = [
        [
            Cell(one.setting),
            Cell(f"{one.arm} - {one.against}"),
            Cell(one.metric),
            Cell(f"{_common(one)} of {one.seeds}", _common(one)),
            Cell(fixed(one.detectable), one.detectable),
            _mean(one.difference, 3, signed=True),
            _number(one.adjusted_p, 3),
            Cell(one.verdict),
        ]
        for one in found
    ]
    powers = " or ".join(f"{power:g}" for power in sorted({one.power for one in found}))
    note = (
        f"Named before the runs. Detectable: the difference that the planned seeds find with a probability of {powers} "
        "after correction, if seeds differ as assumed before. Adjusted p: Holm's, over all comparisons of this table; "
        "below 0.05 the arm is higher or lower. Open: seeds are missing."
    )
    return Table("Primary comparisons", note, heads, rows)


def _common(comparison: Comparison) -> int:
    """Returns the seeds that both arms have."""
    return 0 if comparison.difference is None else comparison.difference.n


def _mean(mean: Mean | None, digits: int, signed: bool = False) -> Cell:
    return Cell("") if mean is None else Cell(with_interval(mean, digits, signed), mean.value)


def _number(value: float | None, digits: int) -> Cell:
    return Cell("") if value is None else Cell(fixed(value, digits), value)
