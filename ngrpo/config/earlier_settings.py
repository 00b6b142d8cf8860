"""Values of settings that checkpoints and stored answers of earlier versions do not know.

Whoever adds a setting, under ``conf/`` or in `ngrpo.config.schema`, does one of two things:

- a resumed run may have another value of it: its name goes into `ngrpo.checkpoint.compatibility.CHANGEABLE`;
- every other one gets a line in `BEFORE`: its whole name, and the value by which the program acted before there was
  such a setting. That is often not its default: with ``"reward.require_evaluated": False`` a run that was begun before
  the setting existed goes on with false only, and is refused with a sentence that says so under a default of true.

A setting that is taken away keeps its line, or gets one with the value by which the program acts from then on. A test
(``tests/config/test_earlier_settings.py``) finds what is neither in the table nor in
``tests/config/known_settings.txt``, the settings of the time when the table was begun; nothing is ever added to that
file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ngrpo.config.renamed_targets import as_stored_today

BEFORE: Mapping[str, object] = {
    "reward.require_evaluated": False,
    "data.keep_fields": [],
    "data.template_args": {},
    "data.template_date": None,
    "rollout.exact": False,
    "rollout.scheduler._target_": "ngrpo.rollout.scheduling.independent.IndependentSamples",
    "algo.shared_tokens": "once",
    "algo.correction.floor": 0.0,
    "algo.ratio_to": "trainer",
    "exploration.largest_support": 128,
    "evaluator.exploration.largest_support": 128,
    "algo.token_weight._target_": "ngrpo.algo.token_weight.EvenTokens",
}
"""Values before there was a setting, by its name; ``*`` stands for a name that users choose (``reward_terms.*.cap``).

A value is written as Python has it: ``None``, ``False``, ``[]``, ``{}`` for an empty group.
"""

_NOTHING = "nothing"


@dataclass(frozen=True)
class Difference:
    """A setting with two values, as they are shown.

    Attributes:
        name: of the setting, whole.
        was: the value stored, or that of before the setting existed.
        now: the value at present, in the same way.
    """

    name: str
    was: str
    now: str


def flat(node: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yields the settings of nested dictionaries by their whole names, values as text; an empty one is ``{}``."""
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from flat(value, f"{name}.{key}".lstrip("."))
    else:
        yield name, str(node)


def differences(
    stored: Mapping[str, str], present: Mapping[str, str], before: Mapping[str, object] = BEFORE
) -> list[Difference]:
    """Compares settings that are `flat`; one that either side does not know has the value of `BEFORE` there.

    Args:
        stored: of an earlier run, perhaps by another version of this program.
        present: of this one.
        before: values by name where a setting is absent.
    """
    found = []
    for name in sorted(stored.keys() | present.keys()):
        was, now = (as_stored_today(name, side.get(name, _earlier(name, before))) for side in (stored, present))
        if was != now:
            found.append(Difference(name, was, now))
    return found


def in_table(name: str, before: Mapping[str, object] = BEFORE) -> bool:
    """Says whether a setting has a line in the table."""
    return any(_stands_for(pattern, name) for pattern in before)


def _earlier(name: str, before: Mapping[str, object]) -> str:
    return next((str(value) for pattern, value in before.items() if _stands_for(pattern, name)), _NOTHING)


def _stands_for(pattern: str, name: str) -> bool:
    wanted, parts = pattern.split("."), name.split(".")
    return len(wanted) == len(parts) and all(w in ("*", part) for w, part in zip(wanted, parts, strict=True))
