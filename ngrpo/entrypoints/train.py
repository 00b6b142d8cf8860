"""Puts a run together from its configuration, and runs it."""

import logging
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig

from ngrpo.algo.best import with_best
from ngrpo.callbacks.export import FOLDER as MODEL
from ngrpo.callbacks.fresh_metrics import FreshMetrics
from ngrpo.checkpoint.compatibility import check_resumable, identity
from ngrpo.checkpoint.folders import STATE, iteration_of, open_checkpoint, resolve
from ngrpo.config.environment import stored
from ngrpo.config.instantiate import build, checked
from ngrpo.config.ranges import check_finite
from ngrpo.config.schema import TrainerConfig
from ngrpo.data.chat_template import chat_format, fix_date
from ngrpo.distributed.parent_watch import end_with_parent, ending_children
from ngrpo.distributed.rendezvous import Connected, on_loopback
from ngrpo.entrypoints.config_snapshot import FOLDER as SETTINGS
from ngrpo.entrypoints.config_snapshot import save_config
from ngrpo.entrypoints.input_validation import (
    check_clip,
    check_end_token,
    check_hardware,
    check_mixtures,
    check_optimizer,
    check_schedule,
    check_seed,
    check_template,
    check_tokens,
)
from ngrpo.entrypoints.rank_watch import watching_ranks
from ngrpo.entrypoints.validation import (
    check_ahead,
    check_algorithm,
    check_context,
    check_critic,
    check_engine,
    check_group,
    check_lora,
    check_ranks,
    check_shaping,
    check_support,
    check_tensor_parallel,
    warn_of_equal_groups,
)
from ngrpo.errors import SettingError
from ngrpo.report.run_store import FOLDER as RECORD
from ngrpo.rewards.isolation.custom import IsolatedReward, IsolatedTerm, build_reward
from ngrpo.rewards.terms.base import WeightedTerm, bounds_of
from ngrpo.rollout.worker import RolloutSettings, RolloutWorker
from ngrpo.training.module import PolicyOptimization, UpdateSettings
from ngrpo.training.nonfinite_guard import StepGuard
from ngrpo.utils.atomic_write import remove
from ngrpo.utils.duration import seconds
from ngrpo.utils.lock import check_own_folders, lock
from ngrpo.utils.torch_settings import accelerator_of, set_torch

log = logging.getLogger(__name__)

_MAX_TIME = "trainer.max_time"
_GRACE_S = 20.0
"""In which a process ends in order whose first process is gone: it may be saving, or find its connection broken."""


def train(config: DictConfig, run_dir: Path, methods: dict[str, str], outputs: Path = Path("outputs")) -> None:
    """Trains as configured.

    Args:
        config: composed from ``conf/train.yaml``.
        run_dir: the run's folder: log, TensorBoard, checkpoints, model, summary.json.
        methods: names of the chosen methods, for the summary.
        outputs: the folder of all runs, where ``ckpt=latest`` looks.

    Raises:
        SettingError: a setting cannot work; raised before any model is loaded.
        RunError: the run cannot continue.
        Stopped: it was asked to stop, and has saved itself.
    """
    end_with_parent(_GRACE_S)
    config = checked(config)
    locked = lock(run_dir) if rank_zero_only.rank == 0 else nullcontext()
    with locked:
        check_own_folders(run_dir)
        _train(config, run_dir, methods, outputs)


def _train(config: DictConfig, run_dir: Path, methods: dict[str, str], outputs: Path) -> None:
    checkpoint = _checkpoint(config, run_dir, outputs)
    set_torch(config.trainer.threads, config.trainer.matmul_precision)
    check_seed(config.seed)
    check_hardware(config.trainer)
    seed_everything(config.seed, verbose=False)
    parts = _build_parts(config, checkpoint)
    source, algorithm, datamodule, worker = (parts[name] for name in ("source", "algorithm", "datamodule", "worker"))
    update = UpdateSettings(
        worker.settings.temperature,
        config.trainer.microbatch_tokens,
        config.trainer.max_grad_norm,
        config.trainer.precision,
        partial(build(config.trainer.schedule), steps=config.trainer.iterations * algorithm.optimizer_steps),
        config.trainer.head_rows,
        config.trainer.offload_reference,
        config.trainer.offload_optimizer,
        config.trainer.gather_once,
    )
    check_schedule(update.learning_rate)
    optimizer = build(config.trainer.optimizer)
    check_optimizer(optimizer, "trainer.optimizer", config.trainer.optimizer)
    check_finite(config)
    settings = stored(config)
    guard = StepGuard(config.trainer.max_bad_steps, run_dir, settings)
    module = PolicyOptimization(source, algorithm, worker.exploration, optimizer, update, parts["critic"], guard)
    parts |= {"iterations": config.trainer.iterations, "run_dir": run_dir, "methods": methods, "seed": config.seed}
    parts |= {"outputs": outputs, "settings": settings}
    parts |= {"max_time_s": None if config.trainer.max_time is None else seconds(config.trainer.max_time, _MAX_TIME)}
    if checkpoint is not None:
        check_resumable(checkpoint, open_checkpoint(checkpoint).run, parts["identity"])
    callbacks = [build(node, **parts) for node in config.callbacks.values() if node is not None]
    callbacks = [FreshMetrics(), Connected(), *callbacks]
    logger = build(config.logger, save_dir=str(run_dir), iterations_done=iteration_of(checkpoint) if checkpoint else 0)
    trainer = make_trainer(config.trainer, process_count(config.trainer), callbacks, logger)
    if rank_zero_only.rank == 0:
        save_config(config, run_dir)
        if checkpoint is None:
            remove(run_dir / RECORD)  # of an earlier run in the same folder
    log.info("run folder %s", run_dir)
    state = None if checkpoint is None else checkpoint / STATE
    try:
        with ending_children(), watching_ranks(run_dir), on_loopback(trainer):
            trainer.fit(module, datamodule=datamodule, ckpt_path=state, weights_only=True)
    finally:
        worker.close()


def _build_parts(config: DictConfig, checkpoint: Path | None) -> dict[str, Any]:
    """Builds what a run consists of, checks that it fits together, and returns it by parameter name."""
    source, algorithm, exploration = (build(node) for node in (config.model, config.algo, config.exploration))
    limit_s = config.custom_reward_timeout_s
    terms = [
        WeightedTerm(str(name), node.weight, build_reward(f"reward_terms.{name}", node.term, limit_s, IsolatedTerm))
        for name, node in config.reward_terms.items()
    ]
    reward = build_reward("reward", config.reward, limit_s, IsolatedReward)
    selection = build(config.selection)
    critic = None if config.critic is None else build(config.critic)
    if critic is not None:
        check_optimizer(critic.optimizer, "critic.optimizer", config.critic.optimizer)
    rollout = RolloutSettings(
        config.rollout.group_size, config.rollout.max_new_tokens, config.rollout.temperature, config.rollout.ahead
    )
    engine = build(config.rollout.engine, model=source, exploration=exploration)
    processes, tensor = process_count(config.trainer), config.trainer.tensor_parallel_size
    check_tensor_parallel(source, processes, tensor)
    ranks = processes // tensor
    check_algorithm(algorithm)
    check_shaping(algorithm, terms)
    algorithm = with_best(algorithm, bounds_of(reward, terms))
    check_critic(algorithm, critic)
    check_group(algorithm, rollout)
    check_lora(source, processes)
    check_support(exploration)
    warn_of_equal_groups(exploration)
    check_clip(algorithm)
    check_ranks(algorithm, ranks)
    check_engine(engine, processes)
    check_mixtures(exploration, source.config())
    source.check_files()
    check_context(source.config(), config.data.max_prompt_tokens, rollout.max_new_tokens)
    tokenizer = source.tokenizer()
    check_tokens(source, tokenizer, source.config())
    check_end_token(exploration, tokenizer)
    check_template(source, tokenizer, config.data.get("plain_prompts", False))
    fix_date(
        config.data,
        tokenizer,
        None if checkpoint is None else open_checkpoint(checkpoint).run.get("data.template_date"),
    )
    batch = algorithm.prompts_per_batch
    engine.check_load(exploration, batch // ranks * rollout.group_size, rollout.max_new_tokens)
    benchmarks = {
        str(name): build(node).ask(name, tokenizer, config.data.max_prompt_tokens, chat_format(config.data)).prompts
        for name, node in config.benchmark.items()
    }
    datamodule = build(
        config.data, tokenizer=tokenizer, prompts_per_batch=batch, seed=config.seed, benchmarks=benchmarks
    )
    check_ahead(rollout, engine, algorithm, selection, datamodule.curriculum)
    stop_ids = source.stop_ids(tokenizer)
    worker = RolloutWorker(engine, tokenizer, reward, exploration, rollout, stop_ids, config.seed, terms=terms)
    return {
        "identity": identity(config, source, tokenizer, datamodule.identity, processes),
        "critic": critic,
        "source": source,
        "algorithm": algorithm,
        "tokenizer": tokenizer,
        "datamodule": datamodule,
        "benchmarks": benchmarks,
        "selection": selection,
        "worker": worker,
    }


def process_count(config: TrainerConfig) -> int:
    """Returns the number of processes over all machines: one a device."""
    devices = config.devices
    if devices == "auto":
        devices = torch.cuda.device_count() if accelerator_of(config.accelerator) == "gpu" else 1
    return int(devices) * config.num_nodes


def make_trainer(config: TrainerConfig, processes: int, callbacks: list[Callback], logger: Any) -> Trainer:
    """Makes the Lightning trainer: one endless epoch that the rollout callback ends.

    One process needs no process group; several shard the models with FSDP2, and with tensor parallelism.
    """
    strategy: Any = "auto"
    if processes > 1:
        tensor = config.tensor_parallel_size
        strategy = ModelParallelStrategy(data_parallel_size=processes // tensor, tensor_parallel_size=tensor)
    return Trainer(
        accelerator=accelerator_of(config.accelerator),
        devices=processes // config.num_nodes,
        num_nodes=config.num_nodes,
        strategy=strategy,
        max_epochs=-1,
        log_every_n_steps=1,
        logger=logger,
        callbacks=callbacks,
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),  # else it adds its own
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
    )


def _checkpoint(config: DictConfig, run_dir: Path, outputs: Path) -> Path | None:
    if config.callbacks.get("rollout") is None:
        raise SettingError("callbacks.rollout=null leaves nothing that makes rollouts; take it out.")
    if config.trainer.iterations < 1:
        raise SettingError(f"trainer.iterations={config.trainer.iterations} trains nothing; choose 1 or more.")
    if config.ckpt is None:
        return None
    folder = resolve(config.ckpt, run_dir, outputs)
    done = iteration_of(folder)
    if done > config.trainer.iterations or (done == config.trainer.iterations and not _lost_export(config, folder)):
        raise SettingError(
            f"trainer.iterations={config.trainer.iterations} is already reached by ckpt={folder} ({done} "
            "iterations); raise it."
        )
    log.info("resuming from %s", folder)
    return folder


def _lost_export(config: DictConfig, checkpoint: Path) -> bool:
    """Says whether the run of a last checkpoint, whose folder is whole, ended before it had exported its model."""
    run = checkpoint.parents[1]
    wanted = config.callbacks.get("export") is not None
    return wanted and (run / SETTINGS).exists() and not (run / MODEL).exists()
