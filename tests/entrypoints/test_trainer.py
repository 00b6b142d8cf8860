"""The Lightning trainer that is made of the settings."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from lightning.pytorch.plugins.environments import SLURMEnvironment
from places import ROOT

from ngrpo.config.schema import register
from ngrpo.entrypoints.trainer import make_trainer


def test_under_slurm_lightning_leaves_the_signals_to_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"NTASKS": "1", "JOB_ID": "7", "JOB_NAME": "ngrpo", "PROCID": "0", "LOCALID": "0"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        config = compose("train", overrides=["trainer=cpu"]).trainer
    trainer = make_trainer(config, 1, [], logger=False)
    environment = trainer._accelerator_connector.cluster_environment
    assert isinstance(environment, SLURMEnvironment)
    assert not environment.auto_requeue
