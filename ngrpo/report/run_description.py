"""The description of a run: what was trained on what, where and how."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Resume:
    """One continuation of a run.

    Attributes:
        iteration: iterations that were done.
        time: when; ISO 8601, UTC.
    """

    iteration: int
    time: str


@dataclass(frozen=True)
class RunDescription:
    """What the report says of a run beside its figures.

    Attributes:
        model: path or hub name of the model that training started from.
        data: the training data.
        held_out: what was evaluated on; empty for nothing.
        data_identity: names the training problems: equal where two runs train on the same.
        methods: names of the chosen methods, such as ``{"algo": "gspo", "exploration": "neighbor"}``.
        strategy: the exploration strategy's class and its settings; with its module where it is the user's own.
        engine: the rollout engine's class.
        seed: the run's.
        started: when; ISO 8601, UTC.
        iterations: planned.
        changed: the settings that differ from the defaults, by name, as they are typed.
        commit: of the code; None outside a checkout.
        versions: of Python and packages, by name.
        hardware: that it was trained on.
        resumes: the continuations after interruptions.
        hub_data: names on the Hub of the training data sets that come from there.
    """

    model: str
    data: str
    held_out: str
    data_identity: str
    methods: Mapping[str, str]
    strategy: str
    engine: str
    seed: int
    started: str
    iterations: int
    changed: Mapping[str, str]
    commit: str | None
    versions: Mapping[str, str]
    hardware: str
    resumes: list[Resume] = field(default_factory=list)
    hub_data: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class RunWarning:
    """One warning.

    Attributes:
        time: when it was given; ISO 8601, UTC.
        message: its text.
    """

    time: str
    message: str
