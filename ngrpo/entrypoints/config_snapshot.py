"""The snapshot of a run's settings in its folder."""

from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from ngrpo.config.environment import stored
from ngrpo.config.yaml_limits import check_text
from ngrpo.errors import SettingError, first_line
from ngrpo.utils.input_files import read_text

FOLDER = ".hydra"
"""Where Hydra would put them, before a script can tell that the folder is another process's: it is told not to."""


def save_config(config: DictConfig, run_dir: Path) -> None:
    """Writes ``config.yaml``, and beside it Hydra's own settings and the overrides if Hydra has composed them.

    Args:
        config: what the run uses, checked. It is written resolved, so that it is read without this program's resolvers,
            but for what came from the environment.
        run_dir: the run's folder, which this process holds.
    """
    folder = run_dir / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(OmegaConf.create(stored(config)), folder / "config.yaml")
    if HydraConfig.initialized():
        OmegaConf.save(HydraConfig.get().overrides.task, folder / "overrides.yaml")
        OmegaConf.save(HydraConfig.instance().cfg, folder / "hydra.yaml")


def has_config(run_dir: Path) -> bool:
    """Says whether there is something that `save_config` wrote."""
    return (run_dir / FOLDER / "config.yaml").is_file()


def load_config(run_dir: Path) -> DictConfig:
    """Reads what `save_config` wrote; what it permits itself is for the caller to leave alone.

    Raises:
        SettingError: there is none, or it is damaged.
    """
    path = run_dir / FOLDER / "config.yaml"
    text = read_text(path, "the run's settings")
    check_text(text, path)
    try:
        config = OmegaConf.create(text)
    except (ValueError, RecursionError, YAMLError, OmegaConfBaseException) as error:
        raise SettingError(f"{path} cannot be read ({first_line(error)}); give the folder of a run.") from error
    if not isinstance(config, DictConfig):
        raise SettingError(f"{path} holds no settings of a run; give the folder of one.")
    return config
