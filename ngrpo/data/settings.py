"""The settings of one source of training problems, and the sources of a mixture by name."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ngrpo.data.row_filter import RowFilter
from ngrpo.data.sources import DataPath, Fields
from ngrpo.errors import SettingError


@dataclass(frozen=True)
class SourceSettings:
    """One source; the settings of ``data`` itself, or those of ``data.sources.<name>``, which stand before them.

    Attributes:
        path: see `ngrpo.data.sources.open_source`.
        weight: its share in a mixture, over the sum of all weights.
        question_field: field of the question.
        answer_field: field of the reference answer.
        solution_field: field in whose last box the answer is where there is none; None looks into no solution.
        difficulty_field: field of the declared difficulty, where the data has one.
        min_difficulty: easier problems are excluded, and those without a difficulty; None for no bound.
        max_difficulty: harder ones, likewise.
        keep_fields: further fields, which rewards get by name.
    """

    path: DataPath | None
    weight: float = 1.0
    question_field: str = "problem"
    answer_field: str = "answer"
    solution_field: str | None = None
    difficulty_field: str = "difficulty"
    min_difficulty: float | None = None
    max_difficulty: float | None = None
    keep_fields: Sequence[str] = ()

    def fields(self, difficulty_required: bool = False) -> Fields:
        """Return how a record is read; with a bound on the difficulty there must be one."""
        required = difficulty_required or self.min_difficulty is not None or self.max_difficulty is not None
        return Fields(
            self.question_field,
            self.answer_field,
            self.solution_field,
            self.difficulty_field,
            required,
            tuple(self.keep_fields),
        )

    def row_filter(self, evaluated: frozenset[int] = frozenset(), distinct: bool = False) -> RowFilter:
        """Return the filter of its rows; see there."""
        return RowFilter(self.min_difficulty, self.max_difficulty, evaluated, distinct)

    def check(self, where: str) -> None:
        """Refuse numbers that cannot work.

        Raises:
            SettingError: naming the setting under `where`.
        """
        if not 0 < self.weight < math.inf:
            raise SettingError(f"{where}.weight={self.weight} is no share; give a positive weight, or leave it out.")
        low, high = self.min_difficulty, self.max_difficulty
        for name, bound in (("min_difficulty", low), ("max_difficulty", high)):
            if bound is not None and math.isnan(bound):
                raise SettingError(f"{where}.{name}={bound} is no number; set one, or null for no bound.")
        if low is not None and high is not None and low > high:
            raise SettingError(f"{where}.min_difficulty={low} is above max_difficulty={high}; lower it.")


def training_sources(
    default: SourceSettings, sources: Mapping[str, Mapping[str, Any]] | None
) -> dict[str, SourceSettings]:
    """Return the settings of each source by where they stand: ``data``, or ``data.sources.<name>`` for a mixture.

    Args:
        default: the settings of ``data`` itself; what a source of a mixture does not say is as there.
        sources: of a mixture, by name; None or empty where there is none.

    Raises:
        SettingError: both or neither are given, or a source has unknown settings or values that cannot work.
    """
    if not sources:
        if default.path is None:
            raise SettingError("data.path=null with data.sources={} names no data; set +data.sources.<name>.path.")
        found = {"data": default}
    else:
        if default.path is not None:
            raise SettingError(
                f"data.path={default.path} stands beside data.sources={list(sources)}; set data.path=null for the"
                " mixture."
            )
        found = {f"data.sources.{name}": _entry(name, entry, default) for name, entry in sources.items()}
    for where, settings in found.items():
        settings.check(where)
    return found


def _entry(name: str, entry: Mapping[str, Any], default: SourceSettings) -> SourceSettings:
    known = [field.name for field in fields(SourceSettings)]
    if not isinstance(entry, Mapping):
        raise SettingError(f"data.sources.{name}={entry} has no settings; set data.sources.{name}.path to it.")
    for key in entry:
        if key not in known:
            raise SettingError(f"data.sources.{name}.{key}={entry[key]} is not a setting; it has {', '.join(known)}.")
    if entry.get("path") is None:
        raise SettingError(f"data.sources.{name}.path=null names no data; set it.")
    return replace(default, **entry)
