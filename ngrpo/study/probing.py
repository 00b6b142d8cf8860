"""Speed of generation and effect of mixing, strategy by strategy, on the untrained model."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from ngrpo.config import build, checked, register
from ngrpo.exploration.random import request_key
from ngrpo.modeling.loading import ModelSource
from ngrpo.rollout.engine import RolloutEngine
from ngrpo.rollout.types import Request
from ngrpo.rollout.worker import RolloutSettings, RolloutWorker
from ngrpo.study.effect import effect
from ngrpo.study.results import Probe
from ngrpo.torch_settings import set_torch
from ngrpo.training import accelerator_of


@dataclass(frozen=True)
class Load:
    """What is generated in a round.

    Attributes:
        problems: how many.
        samples: rollouts of each.
        rounds: how often.
    """

    problems: int
    samples: int
    rounds: int


def training_config(conf: Path, settings: list[str]) -> DictConfig:
    """Returns the configuration that scripts/train.py would have with these settings."""
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(conf)):
        return checked(compose("train", overrides=settings))


def probe(conf: Path, arms: Mapping[str, list[str]], load: Load) -> dict[str, Probe]:
    """Measures arms whose trainings differ in their strategies only as far as rollouts are concerned.

    One engine makes the rollouts of all arms, which take turns round by round, so that a machine whose speed changes
    is no advantage to any of them. One round before the others warms up and is not counted.

    Args:
        conf: the configuration's folder.
        arms: settings of scripts/train.py by name.
        load: how much.

    Returns:
        By arm.
    """
    configs = {arm: training_config(conf, settings) for arm, settings in arms.items()}
    first = next(iter(configs.values()))
    set_torch(first.trainer.threads, first.trainer.matmul_precision)
    source = build(first.model)
    tokenizer = source.tokenizer()
    device = torch.device("cuda" if accelerator_of(first.trainer.accelerator) == "gpu" else "cpu")
    engine = build(first.rollout.engine, model=source)
    engine.start(device)
    workers = {arm: _worker(config, engine, source, tokenizer) for arm, config in configs.items()}
    first.data.eval_problems = load.problems
    data = build(first.data, tokenizer=tokenizer, prompts_per_batch=1, seed=0)
    prompts = [prompt.ids for prompt in data.eval_prompts() for _ in range(load.samples)]
    speeds, tokens = _speeds(workers, prompts, load.rounds, device)
    keys = [request_key(0, number) for number in range(len(prompts))]
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    return {
        arm: Probe(speeds[arm], tokens[arm], effect(worker, prompts, keys) if worker.exploration.mixes else None, name)
        for arm, worker in workers.items()
    }


def _worker(config: DictConfig, engine: RolloutEngine, source: ModelSource, tokenizer: Any) -> RolloutWorker:
    return RolloutWorker(
        engine=engine,
        tokenizer=tokenizer,
        reward=build(config.reward),
        exploration=build(config.exploration),
        settings=RolloutSettings(1, config.rollout.max_new_tokens, config.rollout.temperature),
        stop_ids=source.stop_ids(tokenizer),
        seed=0,
    )


def _speeds(
    workers: Mapping[str, RolloutWorker], prompts: list[tuple[int, ...]], rounds: int, device: torch.device
) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Returns tokens a second of each round but the first, and the tokens of the last, by arm."""
    speeds: dict[str, list[float]] = {arm: [] for arm in workers}
    tokens: dict[str, int] = {}
    for round_number in range(rounds + 1):
        for arm, worker in workers.items():
            requests = [Request(ids, request_key(0, round_number, n)) for n, ids in enumerate(prompts)]
            bound = worker.bound
            start = time.perf_counter()
            made = worker.engine.generate(requests, worker.sampling, bound)
            if device.type == "cuda":
                torch.cuda.synchronize()
            seconds = time.perf_counter() - start
            tokens[arm] = sum(rollout.length for rollout in made)
            if round_number:
                speeds[arm].append(round(tokens[arm] / seconds, 1))
    return speeds, tokens
