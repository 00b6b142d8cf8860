"""The Lightning trainer of a run, and the processes that it stands for."""

import os
from typing import Any

import torch
from lightning import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.environments import SLURMEnvironment
from lightning.pytorch.strategies import ModelParallelStrategy

from ngrpo.config.schema import TrainerConfig
from ngrpo.utils.torch_settings import accelerator_of


def has_unknown_devices(config: TrainerConfig) -> bool:
    """Says whether a run takes all GPUs of its machines, and this one, which only plans it, has none to count."""
    return config.devices == "auto" and accelerator_of(config.accelerator) == "gpu" and not torch.cuda.device_count()


def process_count(config: TrainerConfig) -> int:
    """Returns the number of processes over all machines: one a device, or one for a device that is not here."""
    devices = config.devices
    if devices == "auto":
        devices = (torch.cuda.device_count() or 1) if accelerator_of(config.accelerator) == "gpu" else 1
    return int(devices) * config.num_nodes


def choose_own_gpu(config: TrainerConfig) -> None:
    """Makes the GPU of this process the current one, if it is to train on one.

    Lightning does so when the fit begins. What is put on a GPU before, such as a reward model for its trial, would lie
    on the first one for every process of a machine.
    """
    if accelerator_of(config.accelerator) == "gpu" and torch.cuda.device_count() > 1:
        torch.cuda.set_device(_local_rank())


def _local_rank() -> int:
    """Returns the number of this process among those of its machine, as Lightning counts them."""
    if SLURMEnvironment.detect():
        return SLURMEnvironment(auto_requeue=False).local_rank()
    return int(os.environ.get("LOCAL_RANK", 0))


def make_trainer(config: TrainerConfig, processes: int, callbacks: list[Callback], logger: list[Logger]) -> Trainer:
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
        # Lightning's own handler of SLURM's signal saves in the middle of an iteration; the job file requeues the job.
        plugins=[SLURMEnvironment(auto_requeue=False)] if SLURMEnvironment.detect() else None,
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),  # else it adds its own
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        num_sanity_val_steps=0,
    )
