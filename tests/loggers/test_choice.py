"""The setting ``logger``: any of the loggers, several, none, and the form of earlier versions."""

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from places import ROOT

from ngrpo.config.check import checked
from ngrpo.config.schema import register


def chosen(*overrides: str) -> DictConfig:
    register()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose("train", list(overrides))


@pytest.mark.parametrize(
    ("override", "names"),
    [
        ("seed=0", ["tensorboard"]),
        ("logger=csv", ["csv"]),
        ("logger=[tensorboard,wandb]", ["tensorboard", "wandb"]),
        ("logger=[mlflow,trackio,csv]", ["mlflow", "trackio", "csv"]),
        ("logger=none", []),
        ("logger=[]", []),
        ("~logger", []),
    ],
)
def test_names(override: str, names: list[str]) -> None:
    assert list(checked(chosen(override)).logger) == names


def test_one_without_a_name_is_what_it_was() -> None:
    config = chosen("logger=csv")
    OmegaConf.set_struct(config, False)
    config.logger = OmegaConf.merge(config.logger, {"_target_": "ngrpo.loggers.tensorboard.TensorBoard"})
    node = {"_target_": "ngrpo.loggers.tensorboard.TensorBoard", "name": "csv", "version": ""}
    assert checked(config).logger == {"own": node}


def test_loggers_of_lightning_are_added_whatever_their_annotations() -> None:
    """Those of Weights & Biases and of others name classes that only a type checker imports."""
    added = "+logger.mine={_target_: lightning.pytorch.loggers.WandbLogger, project: mine, offline: true}"
    assert list(checked(chosen(added)).logger) == ["tensorboard", "mine"]
