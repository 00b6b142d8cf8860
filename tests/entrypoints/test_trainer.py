"""The Lightning trainer that is made of the settings."""

from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from lightning.pytorch.plugins.environments import SLURMEnvironment
from omegaconf import DictConfig
from places import ROOT

from ngrpo.config.schema import register
from ngrpo.entrypoints import train
from ngrpo.entrypoints.trainer import choose_own_gpu, make_trainer


def composed(*overrides: str) -> DictConfig:
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        return compose("train", overrides=list(overrides))


def test_under_slurm_lightning_leaves_the_signals_to_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"NTASKS": "1", "JOB_ID": "7", "JOB_NAME": "ngrpo", "PROCID": "0", "LOCALID": "0"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    trainer = make_trainer(composed("trainer=cpu").trainer, 1, [], logger=False)
    environment = trainer._accelerator_connector.cluster_environment
    assert isinstance(environment, SLURMEnvironment)
    assert not environment.auto_requeue


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The GPUs that are made the current one, of two that the machine is told to have."""
    numbers: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", numbers.append)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    return numbers


def test_each_process_of_a_machine_has_a_gpu_of_its_own(chosen: list[int], monkeypatch: pytest.MonkeyPatch):
    for accelerator in ("gpu", "auto", "cpu"):
        choose_own_gpu(composed(f"trainer.accelerator={accelerator}").trainer)
    assert chosen == [0, 0]
    monkeypatch.setenv("LOCAL_RANK", "1")
    choose_own_gpu(composed("trainer=gpu").trainer)
    assert chosen == [0, 0, 1]


def test_slurm_numbers_them_itself(chosen: list[int], monkeypatch: pytest.MonkeyPatch):
    given = {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_JOB_NAME": "train", "SLURM_LOCALID": "1"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    choose_own_gpu(composed("trainer=gpu").trainer)
    assert chosen == [1]


def test_a_process_has_its_gpu_before_rewards_are_tried(chosen: list[int], monkeypatch: pytest.MonkeyPatch):
    """A reward model stays where its trial puts it."""
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(train, "check_hardware", lambda config: None)
    train._set_up_process(composed("trainer=gpu"))
    assert chosen == [1]
