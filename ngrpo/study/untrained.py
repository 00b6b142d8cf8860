"""The untrained model with every strategy of a study, to be measured."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from ngrpo.config import config_dir
from ngrpo.config.check import checked
from ngrpo.config.instantiate import build, build_kind
from ngrpo.config.permissions import grant
from ngrpo.config.schema import register
from ngrpo.exploration.base import Exploration
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.utils.torch_settings import accelerator_of, set_torch


@dataclass(frozen=True)
class Strategy:
    """A strategy that arms of a study have in common.

    Attributes:
        arms: their names; rollouts of the untrained model are the same for all of them.
        worker: makes these rollouts.
    """

    arms: tuple[str, ...]
    worker: RolloutWorker


@dataclass(frozen=True)
class UntrainedModel:
    """What is measured.

    Attributes:
        strategies: of the study's arms, in their order; all use one engine.
        prompts: token ids of each rollout's prompt.
        device: where the engine is.
    """

    strategies: tuple[Strategy, ...]
    prompts: list[tuple[int, ...]]
    device: torch.device

    def device_name(self) -> str:
        """Returns what the engine runs on, in words."""
        return torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu"


def training_config(conf: Path, settings: list[str], folder: Path | None = None) -> DictConfig:
    """Returns the configuration that a training run would have with these settings, and ``--config-dir`` folder."""
    register()
    config_dir.register(folder)
    with initialize_config_dir(version_base="1.3", config_dir=str(conf)):
        config = compose("train", overrides=[*config_dir.search_path(folder), *settings])
    grant(config, settings, folder)
    return checked(config)


def load_untrained(
    conf: Path, arms: Mapping[str, list[str]], problems: int, samples: int, folder: Path | None = None
) -> UntrainedModel:
    """Loads the model that arms start from, whose trainings differ in their strategies only as far as rollouts go.

    Args:
        conf: the configuration's folder.
        arms: settings of training runs by name.
        problems: number of the training data's held-out problems that are prompts.
        samples: rollouts of each.
        folder: further yaml files and modules.
    """
    configs = {arm: training_config(conf, settings, folder) for arm, settings in arms.items()}
    first = next(iter(configs.values()))
    set_torch(first.trainer.threads, first.trainer.matmul_precision)
    source = build(first.model)
    tokenizer = source.tokenizer()
    device = torch.device("cuda" if accelerator_of(first.trainer.accelerator) == "gpu" else "cpu")
    engine = build(
        first.rollout.engine,
        model=source,
        exploration=build_kind(Exploration, first.exploration),
        accelerator=first.trainer.accelerator,
    )
    engine.start(device)
    first.data.eval_problems = problems
    data = build(first.data, tokenizer=tokenizer, prompts_per_batch=1, seed=0)
    prompts = [prompt.ids for prompt in data.eval_prompts() for _ in range(samples)]
    workers = {arm: _worker(config, engine, source, tokenizer) for arm, config in configs.items()}
    return UntrainedModel(_shared(workers), prompts, device)


def _shared(workers: Mapping[str, RolloutWorker]) -> tuple[Strategy, ...]:
    names = defaultdict(list)
    for arm, worker in workers.items():
        names[str(worker.exploration)].append(arm)
    return tuple(Strategy(tuple(arms), workers[arms[0]]) for arms in names.values())


def _worker(config: DictConfig, engine: RolloutEngine, source: ModelSource, tokenizer: Any) -> RolloutWorker:
    return RolloutWorker(
        engine=engine,
        tokenizer=tokenizer,
        reward=build(config.reward),
        exploration=build_kind(Exploration, config.exploration),
        settings=RolloutSettings(1, config.rollout.max_new_tokens, config.rollout.temperature),
        stop_ids=source.stop_ids(tokenizer),
        seed=0,
    )
