"""The definition of a study, from ``conf/study.yaml``: its arms, seeds, learning rates and problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from ngrpo.config import config_dir
from ngrpo.config.permissions import Typed, check_listed, modules_of, typed_settings
from ngrpo.errors import SettingError
from ngrpo.evaluation.solution_paths import normaliser


@dataclass
class ArmConfig:
    """A method.

    Attributes:
        overrides: settings of its training runs.
        seeds: number of runs, with seeds from 0 on.
        against: an arm that it is compared with beside the reference, such as the same algorithm without exploration.
        strengths: values of the one setting that says how strong the method is, such as ``algo.advantage.k=4``; the
            best of them is chosen together with the learning rate. None: what the overrides say.
    """

    overrides: list[str] = MISSING
    seeds: int = MISSING
    against: str | None = None
    strengths: list[str] = field(default_factory=list)


@dataclass
class ProblemSetConfig:
    """A set of problems and the number of answers to each, by plain sampling.

    Attributes:
        path: of the problems, see `ngrpo.data.sources.open_source`.
        problems: number of them, the first ones.
        samples: answers to each.
    """

    path: str = MISSING
    problems: int = MISSING
    samples: int = MISSING


@dataclass
class TuneConfig:
    """The choice of each arm's learning rate: the same few rates for all, one run each.

    Attributes:
        rates: the grid.
        seed: of the runs, none of the study's own.
        iterations: of each run.
        generated_tokens: after which each run ends, if not by its iterations.
        validation: what is evaluated.
        metric: the rate with the highest value is chosen, of equal ones the lowest; see
            `ngrpo.evaluation.benchmark_report`.
    """

    rates: list[float] = MISSING
    seed: int = 1000
    iterations: int = MISSING
    generated_tokens: int | None = None
    validation: ProblemSetConfig = field(default_factory=ProblemSetConfig)
    metric: str = "pass_area"


@dataclass
class DiversityConfig:
    """How diversity is counted.

    Attributes:
        path: calculations | expression | text, see `ngrpo.evaluation.solution_paths`.
        group: samples to which all answers of a problem are rarefied.
        alike: samples to which its right, or its wrong, answers are rarefied.
    """

    path: str = "calculations"
    group: int = 8
    alike: int = 4


@dataclass
class ProbeConfig:
    """What is measured of the strategies on the untrained model, one after the other and alone on the machine.

    Attributes:
        problems: of the training data's held-out ones.
        samples: rollouts of each.
        rounds: times that the speed is measured, the arms taking turns.
    """

    problems: int = MISSING
    samples: int = MISSING
    rounds: int = 5


@dataclass
class LevelsConfig:
    """The choice of a difficulty before any training, and the rule that it has to keep.

    Attributes:
        chosen: ``data.path`` of the training problems; the other settings of a study refer to it.
        paths: ``data.path`` of the candidates, from easy to hard.
        problems: of each.
        samples: answers to each problem.
        low: Mean@1 has to be at least this ...
        high: ... and at most this; the candidate nearest to the middle is named.
        gain: Pass@``samples`` has to be at least so much more than Mean@1.
        unsolved: at least this share of the problems has to be unsolved in all samples.
    """

    chosen: str = MISSING
    paths: list[str] = field(default_factory=list)
    problems: int = 64
    samples: int = 8
    low: float = 0.1
    high: float = 0.3
    gain: float = 0.0
    unsolved: float = 0.0


@dataclass
class ComparisonConfig:
    """A comparison that is named before the runs.

    Attributes:
        arm: the method.
        against: what it is compared with.
        metric: a figure of `ngrpo.study.arm_summary.figures`.
    """

    arm: str = MISSING
    against: str = MISSING
    metric: str = MISSING


@dataclass
class PrimaryConfig:
    """The primary family: the few comparisons whose intervals are corrected for their number; all else is exploratory.

    Attributes:
        comparisons: of this setting.
        family: comparisons of all settings together, for which Holm's correction is made.
        assumed_sd: standard deviation over seeds of a paired difference, as expected before the runs.
        power: probability with which the smallest detectable effect would be found.
    """

    comparisons: list[ComparisonConfig] = field(default_factory=list)
    family: int = MISSING
    assumed_sd: float = MISSING
    power: float = 0.8


@dataclass
class StudyConfig:
    """The root.

    Attributes:
        name: of the study.
        base_model: folder or hub name of what is trained.
        make_model: a module, or a script by its path, and the arguments with which it makes the folder if that is not
            there; none for a model that exists.
        train: settings of the training runs that all arms share.
        evaluate: settings of the evaluations.
        arms: the methods by name.
        reference: the arm that the others are compared with.
        iterations: of each run.
        generated_tokens: after which each run ends, if not by its iterations: arms are compared at equal cost.
        test: what the study's figures come from.
        tune: how learning rates are chosen.
        diversity: how it is counted.
        probe: what is measured beside the runs.
        levels: the difficulty, and how it was chosen.
        primary: the comparisons that count; none for a study that is exploratory as a whole.
        keep_files: keep the models, answers and logs of finished runs; else their ``result.json`` only.
    """

    name: str = MISSING
    base_model: str = MISSING
    make_model: list[str] = field(default_factory=list)
    train: list[str] = MISSING
    evaluate: list[str] = MISSING
    arms: dict[str, ArmConfig] = field(default_factory=dict)
    reference: str = MISSING
    iterations: int = MISSING
    generated_tokens: int | None = None
    test: ProblemSetConfig = field(default_factory=ProblemSetConfig)
    tune: TuneConfig = field(default_factory=TuneConfig)
    diversity: DiversityConfig = field(default_factory=DiversityConfig)
    probe: ProbeConfig = field(default_factory=ProbeConfig)
    levels: LevelsConfig = field(default_factory=LevelsConfig)
    primary: PrimaryConfig | None = None
    keep_files: bool = True


_MODEL_MAKER, _EARLIER_MODEL_MAKER = "ngrpo.entrypoints.demo_model_command", "scripts/make_demo_model.py"


def register_study() -> None:
    """Makes the schema known to Hydra."""
    ConfigStore.instance().store(group="schema", name="study", node=StudyConfig, package="_global_")


def load_study(conf: Path, name: str, overrides: list[str], folder: Path | None = None) -> StudyConfig:
    """Composes a study.

    Args:
        conf: the configuration's folder.
        name: a file of ``conf/study``, or of ``study`` in the folder.
        overrides: settings of the study, such as ``iterations=20``.
        folder: further yaml files, and modules that they may name.

    Raises:
        SettingError: it contradicts itself.
    """
    register_study()
    modules_of(folder)
    config_dir.register(folder)
    words = [*config_dir.search_path(folder), f"study={name}", *overrides]
    with initialize_config_dir(version_base="1.3", config_dir=str(conf)):
        study = study_of(compose("study", overrides=words))
    study.make_model = current_maker(study.make_model)
    _check_permissions(study, typed_settings(overrides))
    return study


def current_maker(make_model: list[str]) -> list[str]:
    """Returns the command that makes a model, with the module in place of the script that version 0.1 named."""
    return [_MODEL_MAKER if word == _EARLIER_MODEL_MAKER else word for word in make_model[:1]] + make_model[1:]


def _check_permissions(study: StudyConfig, typed: Typed) -> None:
    """What a study lists becomes command lines, on which it must not permit itself anything."""
    lists = {"train": study.train, "evaluate": study.evaluate}
    lists |= {f"arms.{name}.overrides": arm.overrides for name, arm in study.arms.items()}
    for place, overrides in lists.items():
        check_listed(place, overrides, typed)
    if study.make_model and study.make_model[0] != _MODEL_MAKER and "make_model.0" not in typed:
        raise SettingError(f"make_model={study.make_model[0]} is not {_MODEL_MAKER}, the one module that makes models.")


def study_of(config: DictConfig) -> StudyConfig:
    """Returns the study that a composed configuration describes (see `load_study`)."""
    study = cast(StudyConfig, OmegaConf.to_object(config))
    if study.reference not in study.arms:
        raise SettingError(f"reference={study.reference} is no arm; choose one of {', '.join(study.arms)}.")
    normaliser(study.diversity.path)
    for arm, settings in study.arms.items():
        if settings.seeds < 1:
            raise SettingError(f"arms.{arm}.seeds={settings.seeds} runs nothing; choose 1 or more, or leave it out.")
        if settings.against is not None and settings.against not in study.arms:
            known = ", ".join(study.arms)
            raise SettingError(f"arms.{arm}.against={settings.against} is no arm; choose one of {known}.")
        if settings.seeds > study.tune.seed:
            raise SettingError(
                f"tune.seed={study.tune.seed} is also a seed of arms.{arm}; choose one of at least {settings.seeds}."
            )
    if not study.tune.rates:
        raise SettingError("tune.rates=[] leaves no learning rate; give one or more.")
    for rate in study.tune.rates:
        if not 0 <= rate < float("inf"):
            raise SettingError(f"tune.rates has {rate}, which is no learning rate; give finite numbers from 0 on.")
    for name, iterations in (("iterations", study.iterations), ("tune.iterations", study.tune.iterations)):
        if iterations < 1:
            raise SettingError(f"{name}={iterations} trains nothing; choose 1 or more.")
    budgets = (("generated_tokens", study.generated_tokens), ("tune.generated_tokens", study.tune.generated_tokens))
    for name, tokens in budgets:
        if tokens is not None and tokens < 1:
            raise SettingError(f"{name}={tokens} trains nothing; choose 1 or more, or null for no limit.")
    if study.primary is not None:
        _check_primary(study.primary, study.arms)
    return study


def _check_primary(primary: PrimaryConfig, arms: Mapping[str, ArmConfig]) -> None:
    for number, one in enumerate(primary.comparisons):
        for role, arm in (("arm", one.arm), ("against", one.against)):
            if arm not in arms:
                raise SettingError(
                    f"primary.comparisons.{number}.{role}={arm} is no arm; choose one of {', '.join(arms)}."
                )
            if arms[arm].seeds < 2:
                raise SettingError(
                    f"arms.{arm}.seeds={arms[arm].seeds} decides no comparison, but primary.comparisons.{number} is "
                    "one; choose 2 or more."
                )
    if primary.family < len(primary.comparisons):
        raise SettingError(
            f"primary.family={primary.family} is fewer than the {len(primary.comparisons)} comparisons of this setting;"
            " count those of all settings."
        )
    if not primary.assumed_sd > 0:
        raise SettingError(f"primary.assumed_sd={primary.assumed_sd} is no standard deviation; give one above 0.")
    if not 0.5 <= primary.power < 1:
        raise SettingError(f"primary.power={primary.power} is no probability of at least a half; choose 0.8.")


def only(study: StudyConfig, arms: Sequence[str]) -> StudyConfig:
    """Returns a study of some of its arms, such as a job of its own makes; all of them where none is named.

    Raises:
        SettingError: one of them is no arm.
    """
    for arm in arms:
        if arm not in study.arms:
            raise SettingError(f"--only {arm} is no arm of study {study.name}; choose one of {', '.join(study.arms)}.")
    return replace(study, arms={arm: study.arms[arm] for arm in arms}) if arms else study


def as_json(study: StudyConfig) -> dict[str, Any]:
    """Returns the study as JSON values."""
    made: dict[str, Any] = cast(dict[str, Any], OmegaConf.to_container(OmegaConf.structured(study)))
    return made
