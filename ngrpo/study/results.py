"""The results of a study, and the files that hold them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ngrpo.errors import SettingError
from ngrpo.utils.atomic_write import write_text
from ngrpo.utils.input_files import read_json

RESULT = "result.json"


@dataclass(frozen=True)
class AnswerStatistics:
    """A model's answers to the P test problems, n each.

    Attributes:
        samples: n.
        right: right answers to each problem; P.
        majority: maj@k by k, mean over problems.
        answers: distinct final answers among a group's number of samples, rarefied; P.
        paths: distinct solution paths among them; P.
        wrong_answers: distinct final answers among a small number of wrong samples; P, None where there are fewer.
        right_paths: distinct solution paths among a small number of right samples; P, None where there are fewer.
        length: tokens of a response, mean.
        truncated: fraction of the responses that ran into the length limit.
        solutions: distinct solution paths among all right answers to each problem; P, None in earlier studies.
    """

    samples: int
    right: Sequence[int]
    majority: Mapping[str, float]
    answers: Sequence[float | None]
    paths: Sequence[float | None]
    wrong_answers: Sequence[float | None]
    right_paths: Sequence[float | None]
    length: float
    truncated: float
    solutions: Sequence[int] | None = None


@dataclass(frozen=True)
class Effect:
    """The effect of mixed steps on what follows; see `ngrpo.study.effect`.

    Attributes:
        steps: mixed steps that were examined.
        mixed: fraction of all positions that is mixed.
        cosine: cos(mixed vector, embedding of its first token), mean.
        against_draw: fractions of mixed steps that change something, compared with an ordinary draw at that step.
        against_token: the same fractions, compared with the same token fed plainly.
        noise: fraction of the rollouts that differed already before the step when generated again, for rounding.
    """

    steps: int
    mixed: float
    cosine: float
    against_draw: Mapping[str, float]
    against_token: Mapping[str, float]
    noise: float


@dataclass(frozen=True)
class RunResult:
    """One arm with one seed.

    Attributes:
        arm: its name.
        seed: of the training.
        rate: learning rate.
        settings: of the training run.
        iterations: made.
        test: the trained model's answers.
        curves: values of each iteration by metric.
        seconds: wall-clock time by step.
        device: what it ran on.
        commit: of the program.
        date: when it was finished.
        tokens: generated for training; None in earlier studies.
        versions: of the packages that it ran with, by name.
    """

    arm: str
    seed: int
    rate: float
    settings: Sequence[str]
    iterations: int
    test: AnswerStatistics
    curves: Mapping[str, Sequence[float]]
    seconds: Mapping[str, float]
    device: str
    commit: str | None
    date: str
    tokens: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RateTrial:
    """A learning rate, with a strength, on the validation problems.

    Attributes:
        rate: the rate.
        metrics: of the evaluation; see `ngrpo.evaluation.benchmark_report.per_problem`.
        strength: the setting of the arm's strength; None for an arm without.
    """

    rate: float
    metrics: Mapping[str, float]
    strength: str | None = None


@dataclass(frozen=True)
class RateChoice:
    """The choice of an arm's learning rate and strength.

    Attributes:
        chosen: the rate.
        tried: the grid.
        strength: the setting of the strength; None for an arm without.
    """

    chosen: float
    tried: Sequence[RateTrial]
    strength: str | None = None


def strength_name(setting: str) -> str:
    """Returns the end of a strength's name with its value, such as ``share=0.2``."""
    name, _, value = setting.partition("=")
    return f"{name.rpartition('.')[2]}={value}"


@dataclass(frozen=True)
class Speed:
    """A strategy's generation on the untrained model, alone on the machine.

    Attributes:
        tokens_per_s: in each round.
        tokens: generated in a round.
        device: what it ran on.
    """

    tokens_per_s: Sequence[float]
    tokens: int
    device: str


@dataclass(frozen=True)
class Results:
    """All of a study.

    Attributes:
        study: its definition.
        base: the untrained model's answers to the test problems; None if they are not there yet.
        tuned: by arm.
        runs: finished ones.
        speeds: of generation by arm.
        effects: of mixed steps by arm; None where nothing is mixed.
        levels: metrics of the untrained model by candidate, ``mean@1`` and ``pass@n``, where the difficulty was chosen.
    """

    study: Mapping[str, Any]
    base: AnswerStatistics | None = None
    tuned: Mapping[str, RateChoice] = field(default_factory=dict)
    runs: Sequence[RunResult] = ()
    speeds: Mapping[str, Speed] = field(default_factory=dict)
    effects: Mapping[str, Effect | None] = field(default_factory=dict)
    levels: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def of_arm(self, arm: str) -> list[RunResult]:
        """Returns an arm's runs by seed."""
        return sorted((run for run in self.runs if run.arm == arm), key=lambda run: run.seed)


def run_of(plain: Mapping[str, Any]) -> RunResult:
    """Reads a run from JSON values."""
    return RunResult(**{**plain, "test": AnswerStatistics(**plain["test"])})


def rate_choice_of(plain: Mapping[str, Any]) -> RateChoice:
    """Reads the choice of a rate from JSON values."""
    return RateChoice(plain["chosen"], [RateTrial(**one) for one in plain["tried"]], plain.get("strength"))


def speeds_of(plain: Mapping[str, Any]) -> dict[str, Speed]:
    """Reads speeds by arm from JSON values."""
    return {arm: Speed(**one) for arm, one in plain.items()}


def effects_of(plain: Mapping[str, Any]) -> dict[str, Effect | None]:
    """Reads effects by arm from JSON values."""
    return {arm: None if one is None else Effect(**one) for arm, one in plain.items()}


def levels_of(plain: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Reads metrics by candidate from JSON values; earlier studies have the Mean@1 alone."""
    return {path: dict(one) if isinstance(one, Mapping) else {"mean@1": float(one)} for path, one in plain.items()}


def load(path: Path) -> Results:
    """Reads a study's results.

    Raises:
        SettingError: the file holds none.
    """
    plain = read_json(path, "the file of results")
    try:
        results = Results(
            study=plain["study"],
            base=None if plain["base"] is None else AnswerStatistics(**plain["base"]),
            tuned={arm: rate_choice_of(one) for arm, one in plain["tuned"].items()},
            runs=[run_of(one) for one in plain["runs"]],
            speeds=speeds_of(plain["speeds"]),
            effects=effects_of(plain["effects"]),
            levels=levels_of(plain["levels"]),
        )
        _check(results)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        reason = f"{type(error).__name__}: {str(error)[:100]}"
        raise SettingError(f"{path} holds no results of a study ({reason}); give a results.json.") from error
    return results


def _check(results: Results) -> None:
    """Compares the names of what a study consists of, which tables and figures go by.

    Raises:
        KeyError, TypeError: something is missing, or of another kind.
    """
    study = results.study
    for name in ("name", "iterations", "reference", "arms"):
        _ = study[name]
    int(study["test"]["samples"])
    int(study["test"]["problems"])
    for run in results.runs:
        _ = study["arms"][run.arm]


def save(results: Results, path: Path) -> None:
    """Writes a study's results, a line a run."""
    plain = asdict(results)
    runs = ",\n".join(json.dumps(one, separators=(",", ":")) for one in plain.pop("runs"))
    head = json.dumps(plain, separators=(",", ":"))
    write_text(path, f'{head[:-1]},"runs":[\n{runs}\n]}}\n')


def write(path: Path, content: Any) -> None:
    """Writes a dataclass, some by name, or JSON values, whole or not at all."""
    write_text(path, json.dumps(content, separators=(",", ":"), default=asdict) + "\n")


def read(path: Path) -> dict[str, Any]:
    """Reads JSON values by name; none if there is no file."""
    found = read_json(path, "the study's file") if path.exists() else {}
    if not isinstance(found, dict):
        raise SettingError(f"{path} holds no values by name; remove it, and the study makes it again.")
    return found
