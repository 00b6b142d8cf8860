"""The settings of a run, in its folder."""

from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

FOLDER = ".hydra"
"""Where Hydra would put them, before a script can tell that the folder is another process's: it is told not to."""


def keep(config: DictConfig, run_dir: Path) -> None:
    """Writes ``config.yaml``, and beside it Hydra's own settings and the overrides if Hydra has composed them.

    Args:
        config: what the run uses; resolved, so that it is read without this program's resolvers.
        run_dir: the run's folder, which this process holds.
    """
    folder = run_dir / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(config, folder / "config.yaml", resolve=True)
    if HydraConfig.initialized():
        OmegaConf.save(HydraConfig.get().overrides.task, folder / "overrides.yaml")
        OmegaConf.save(HydraConfig.instance().cfg, folder / "hydra.yaml")
