"""The parts of a run that its callbacks may ask for by name."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ngrpo.algo.policy_loss import Algorithm
from ngrpo.modeling.loading import ModelSource
from ngrpo.report.run_description import RunDescription
from ngrpo.report.warning_collector import WarningCollector
from ngrpo.rollout.dynamic_sampling import DynamicSampling
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.training.critic_update import CriticSettings
from ngrpo.training.run_length import RunLength
from ngrpo.types.problems import Prompt


@dataclass(frozen=True)
class RunParts:
    """What a run consists of.

    A parameter of a callback's ``__init__`` that has the name of an attribute gets its value, unless the callback's
    node in the configuration sets it; see `ngrpo.callbacks`.

    Attributes:
        run_dir: the run's folder.
        outputs: the folder of all runs.
        iterations: most iterations of the whole run, those before a resume included.
        run_length: that limit, and the one of generated tokens.
        max_time_s: seconds after which this process is to stop; None for no limit.
        seed: of everything random.
        settings: the whole configuration as plain values; what came from the environment is its interpolation.
        methods: names of the chosen methods, such as ``{"algo": "gspo", "exploration": "neighbor"}``.
        identity: what a checkpoint of this run belongs to (`ngrpo.checkpoint.compatibility.identity`).
        source: the model that training starts from; nothing is loaded yet.
        tokenizer: the model's tokenizer, of transformers.
        algorithm: the objective.
        critic: settings of the critic; None where none is trained.
        selection: which groups of rollouts are trained on.
        worker: makes and scores rollouts; has the engine, the strategy (``worker.exploration``) and the reward.
        datamodule: the Lightning data module of the training and evaluation prompts.
        benchmarks: prompts of the chosen benchmarks, by name.
        description: what the run is, for its report.
        warned: what was warned of so far, and from now on.
    """

    run_dir: Path
    outputs: Path
    iterations: int
    run_length: RunLength
    max_time_s: int | None
    seed: int
    settings: Mapping[str, Any]
    methods: Mapping[str, str]
    identity: Mapping[str, str]
    source: ModelSource
    tokenizer: Any
    algorithm: Algorithm
    critic: CriticSettings | None
    selection: DynamicSampling
    worker: RolloutWorker
    datamodule: Any
    benchmarks: Mapping[str, list[Prompt]]
    description: RunDescription
    warned: WarningCollector

    def by_name(self) -> dict[str, Any]:
        """Returns the parts by their names, to be passed to `ngrpo.config.instantiate.build`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def chosen_methods(choices: Mapping[str, str]) -> dict[str, str]:
    """Returns the presets that a run is named by, of those that Hydra has chosen."""
    return {group: choices[group] for group in ("algo", "exploration", "rollout")}
