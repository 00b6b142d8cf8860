"""Choices of earlier versions that are no more, and what to do instead.

What is called otherwise today has a line in `ngrpo.compat.moved` instead, and goes on as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ngrpo.errors import SettingError


@dataclass(frozen=True)
class Removed:
    """A method that the program had.

    Attributes:
        group: of settings, as presets of it are chosen.
        preset: its name there.
        target: the class that it built, as the last version that had it called it.
        successor: the preset that has taken its place.
        why: in what that differs.
    """

    group: str
    preset: str
    target: str
    successor: str
    why: str

    @property
    def remedy(self) -> str:
        """What to do, after a semicolon."""
        return (
            f"{self.group}={self.successor}, {self.why}, has taken its place: choose that for a new run, which may "
            "start from the exported model of an earlier one, and resume a run of the old method with the version that "
            "began it."
        )


REMOVED = (
    Removed(
        group="rollout/scheduler",
        preset="lookahead",
        target="ngrpo.rollout.scheduling.lookahead.ForkWithLookahead",
        successor="latr",
        why="LATR's own rule with other settings",
    ),
)

_TARGETS: Mapping[str, Removed] = {one.target: one for one in REMOVED}
_PRESETS: Mapping[tuple[str, str], Removed] = {(one.group, one.preset): one for one in REMOVED}


def preset_refusal(group: str, name: str) -> str | None:
    """Returns the sentence for a preset that is no more; None for any other name."""
    found = _PRESETS.get((group, name))
    return None if found is None else f"{group}={name} is no more; {found.remedy}"


def check_target(setting: str, value: str, of: str = "") -> None:
    """Refuses a class that is no more.

    Args:
        setting: the whole name of a `_target_`.
        value: a dotted path.
        of: what has the setting, such as a checkpoint; before it in the sentence.

    Raises:
        SettingError: it is no more.
    """
    if value in _TARGETS:
        raise SettingError(f"{of}{setting}={value}, which is no more; {_TARGETS[value].remedy}")
