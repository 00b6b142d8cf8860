"""The worker that answers the problems of an evaluation."""

import torch
from omegaconf import DictConfig

from ngrpo.config.instantiate import build
from ngrpo.config.ranges import check_finite
from ngrpo.entrypoints.engine_comparison import check_engine
from ngrpo.entrypoints.input_validation import check_inputs
from ngrpo.evaluation.evaluator import Evaluator
from ngrpo.modeling.learned import load_learned
from ngrpo.modeling.loading import ModelSource
from ngrpo.rewards.isolation.custom import StrictIsolatedReward, build_reward
from ngrpo.rollout.settings import RolloutSettings
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.utils.torch_settings import accelerator_of


def build_evaluation_worker(config: DictConfig, source: ModelSource, evaluator: Evaluator) -> RolloutWorker:
    """Returns the worker, whose engine is not started.

    Args:
        config: checked, of ``conf/evaluate.yaml``.
        source: the model.
        evaluator: samples, temperature, strategy.

    Raises:
        SettingError: a setting does not fit the model.
    """
    rollout = RolloutSettings(max_new_tokens=config.rollout.max_new_tokens)
    check_finite(config)
    parts = {"model": source, "exploration": evaluator.exploration, "exact": config.rollout.exact}
    engine = build(config.rollout.engine, **parts)
    tokenizer = check_inputs(source, evaluator.exploration, engine, config, config.problems_at_once * evaluator.samples)
    return RolloutWorker(
        engine=engine,
        tokenizer=tokenizer,
        reward=build_reward("reward", config.reward, config.custom_reward_timeout_s, StrictIsolatedReward),
        exploration=evaluator.exploration,
        settings=rollout,
        stop_ids=source.stop_ids(tokenizer),
        seed=config.seed,
        learned=load_learned(source, evaluator.exploration),
    )


def start_evaluation_worker(worker: RolloutWorker, source: ModelSource, config: DictConfig) -> None:
    """Starts the worker's engine, and compares it with PyTorch if it says so.

    Raises:
        RunError: it does not start, or does not compute the same.
    """
    worker.start(torch.device("cuda" if accelerator_of(config.accelerator) == "gpu" else "cpu"))
    if worker.engine.checked_as:
        check_engine(worker.engine, worker.bound, source, config, len(worker.tokenizer))
