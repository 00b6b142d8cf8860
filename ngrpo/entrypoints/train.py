"""Training from a configuration: build the parts, check them, fit."""

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from lightning import Callback, Trainer, seed_everything
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import DictConfig

from ngrpo.callbacks.export import FOLDER as MODEL
from ngrpo.callbacks.fresh_metrics import FreshMetrics
from ngrpo.checkpoint.compatibility import check_resumable, identity
from ngrpo.checkpoint.folders import STATE, iteration_of, open_checkpoint, resolve
from ngrpo.config.check import checked
from ngrpo.config.environment import stored
from ngrpo.config.instantiate import build
from ngrpo.config.ranges import check_finite
from ngrpo.data.chat_template import chat_format, fix_date
from ngrpo.distributed.parent_watch import end_with_parent, ending_children
from ngrpo.distributed.rendezvous import Connected, on_loopback
from ngrpo.entrypoints.changed_settings import changed_settings
from ngrpo.entrypoints.components import Components, build_components
from ngrpo.entrypoints.config_snapshot import has_config, save_config
from ngrpo.entrypoints.described_run import described
from ngrpo.entrypoints.engine_choice import choose_for_training, tell
from ngrpo.entrypoints.input_validation import check_hardware, check_training_inputs
from ngrpo.entrypoints.planned_start import check_memory
from ngrpo.entrypoints.rank_watch import watching_ranks
from ngrpo.entrypoints.refused_run import removing_added
from ngrpo.entrypoints.reward_trial import try_rewards
from ngrpo.entrypoints.run_parts import RunParts
from ngrpo.entrypoints.state_check import check_callback
from ngrpo.entrypoints.trainer import choose_own_gpu, make_trainer
from ngrpo.entrypoints.validation import check_run, check_settings
from ngrpo.errors import SettingError
from ngrpo.report.run_store import FOLDER as RECORD
from ngrpo.report.warning_collector import WarningCollector, collecting_warnings
from ngrpo.rollout.worker import RolloutWorker
from ngrpo.training.module import PolicyOptimization
from ngrpo.training.nonfinite_guard import StepGuard
from ngrpo.training.run_length import RunLength
from ngrpo.types.problems import Prompt
from ngrpo.utils.atomic_write import remove
from ngrpo.utils.duration import seconds
from ngrpo.utils.lock import check_own_folders, lock
from ngrpo.utils.torch_settings import set_torch

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
    with locked, collecting_warnings() as warned:
        check_own_folders(run_dir)
        _train(config, run_dir, methods, outputs, warned)


def _train(config: DictConfig, run_dir: Path, methods: dict[str, str], outputs: Path, warned: WarningCollector) -> None:
    check_run(config)
    checkpoint = _checkpoint(config, run_dir, outputs)
    saved = {} if checkpoint is None else open_checkpoint(checkpoint).run
    loggers = _loggers(config, run_dir, checkpoint)
    _set_up_process(config)
    changed = changed_settings(stored(config))  # before the program sets what was left open
    choice = choose_for_training(config, None if checkpoint is None else checkpoint.parents[1])
    components = build_components(config)
    check_settings(components, config)
    tokenizer = check_training_inputs(components, config)
    planned = check_memory(config)
    fix_date(config.data, tokenizer, saved.get("data.template_date"))
    parts = _run_parts(config, components, tokenizer, run_dir, methods, outputs, changed, warned)
    check_finite(config)
    if checkpoint is not None:
        check_resumable(checkpoint, saved, parts.identity)
    try_rewards(config, components, parts.datamodule, parts.benchmarks, tokenizer)
    module = _module(config, components, parts)
    trainer = make_trainer(config.trainer, components.processes, _callbacks(config, parts), loggers)
    _open_loggers(loggers, run_dir)
    tell(choice, planned)
    _begin_folder(config, run_dir, anew=checkpoint is None)
    _fit(trainer, module, parts, checkpoint)


def _set_up_process(config: DictConfig) -> None:
    set_torch(config.trainer.threads, config.trainer.matmul_precision)
    check_hardware(config.trainer)
    choose_own_gpu(config.trainer)
    seed_everything(config.seed, verbose=False)


def _run_parts(
    config: DictConfig,
    components: Components,
    tokenizer: Any,
    run_dir: Path,
    methods: dict[str, str],
    outputs: Path,
    changed: Mapping[str, str],
    warned: WarningCollector,
) -> RunParts:
    """Reads the data, and returns everything that callbacks may ask for."""
    benchmarks = _benchmarks(config, tokenizer)
    datamodule = build(
        config.data,
        tokenizer=tokenizer,
        prompts_per_batch=components.algorithm.prompts_per_batch,
        seed=config.seed,
        benchmarks=benchmarks,
    )
    max_time = config.trainer.max_time
    return RunParts(
        run_dir=run_dir,
        outputs=outputs,
        iterations=config.trainer.iterations,
        run_length=RunLength(config.trainer.iterations, config.trainer.max_generated_tokens),
        max_time_s=None if max_time is None else seconds(max_time, _MAX_TIME),
        seed=config.seed,
        settings=stored(config),
        methods=methods,
        identity=identity(config, components.source, tokenizer, datamodule.identity, components.processes),
        source=components.source,
        tokenizer=tokenizer,
        algorithm=components.algorithm,
        critic=components.critic,
        selection=components.selection,
        worker=_worker(components, tokenizer, config.seed),
        datamodule=datamodule,
        benchmarks=benchmarks,
        description=described(config, components, datamodule, methods, changed),
        warned=warned,
    )


def _benchmarks(config: DictConfig, tokenizer: Any) -> dict[str, list[Prompt]]:
    chat, longest = chat_format(config.data), config.data.max_prompt_tokens
    return {
        str(name): build(node).ask(name, tokenizer, longest, chat).prompts for name, node in config.benchmark.items()
    }


def _worker(components: Components, tokenizer: Any, seed: int) -> RolloutWorker:
    return RolloutWorker(
        engine=components.engine,
        tokenizer=tokenizer,
        reward=components.reward,
        exploration=components.exploration,
        settings=components.rollout,
        stop_ids=components.source.stop_ids(tokenizer),
        seed=seed,
        terms=components.terms,
    )


def _module(config: DictConfig, components: Components, parts: RunParts) -> PolicyOptimization:
    guard = StepGuard(config.trainer.max_bad_steps, parts.run_dir, parts.settings)
    return PolicyOptimization(
        components.source,
        components.algorithm,
        components.exploration,
        components.optimizer,
        components.update,
        components.critic,
        guard,
    )


def _callbacks(config: DictConfig, parts: RunParts) -> list[Callback]:
    nodes = {str(name): node for name, node in config.callbacks.items() if node is not None}
    chosen = {name: build(node, **parts.by_name()) for name, node in nodes.items()}
    for name, node in nodes.items():
        check_callback(name, node, chosen[name])
    return [FreshMetrics(), Connected(), *chosen.values()]


def _loggers(config: DictConfig, run_dir: Path, checkpoint: Path | None) -> list[Logger]:
    """Builds the loggers; each may ask for the parts that are named here."""
    offered = {
        "save_dir": str(run_dir),
        "run_name": run_dir.name,
        "iterations_done": 0 if checkpoint is None else iteration_of(checkpoint),
        "resumed_from": None if checkpoint is None else checkpoint.parents[1],
    }
    made = [build(node, **offered) for node in config.logger.values() if node is not None]
    for one in made:
        if not isinstance(one, Logger):
            raise SettingError(f"logger makes a {type(one).__name__}; name Lightning loggers, such as ngrpo.loggers.")
    return made


def _open_loggers(loggers: list[Logger], run_dir: Path) -> None:
    """Lets each say now, before anything is loaded, that it cannot start; what they wrote so far goes then."""
    with removing_added(run_dir):
        for logger in loggers:
            getattr(logger, "experiment", None)


def _begin_folder(config: DictConfig, run_dir: Path, anew: bool) -> None:
    if rank_zero_only.rank == 0:
        save_config(config, run_dir)
        if anew:
            remove(run_dir / RECORD)  # of an earlier run in the same folder
    log.info("run folder %s", run_dir)


def _fit(trainer: Trainer, module: PolicyOptimization, parts: RunParts, checkpoint: Path | None) -> None:
    state = None if checkpoint is None else checkpoint / STATE
    try:
        with ending_children(), watching_ranks(parts.run_dir), on_loopback(trainer):
            trainer.fit(module, datamodule=parts.datamodule, ckpt_path=state, weights_only=True)
    finally:
        parts.worker.close()


def _checkpoint(config: DictConfig, run_dir: Path, outputs: Path) -> Path | None:
    """Returns the folder of the checkpoint that the run resumes from; None for a new run."""
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
    return wanted and has_config(run) and not (run / MODEL).exists()
