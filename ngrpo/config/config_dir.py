"""The folder of ``--config-dir`` as ``${config_dir:}``: how a yaml names the files that lie beside it."""

from pathlib import Path

from omegaconf import OmegaConf

from ngrpo.config.override_quoting import quoted
from ngrpo.errors import SettingError


def register(folder: Path | None = None) -> None:
    """Makes the resolver known.

    Args:
        folder: as typed; with None, what names it is refused.
    """

    def absolute() -> str:
        if folder is None:
            raise SettingError("${config_dir:} is the folder of --config-dir; add --config-dir FOLDER.")
        return str(folder.resolve())

    OmegaConf.register_new_resolver("config_dir", absolute, replace=True)


def search_path(folder: Path | None) -> list[str]:
    """Returns the override by which Hydra's ``compose`` finds the yaml files in a folder, as ``--config-dir`` does."""
    if folder is None:
        return []
    return [f"hydra.searchpath=[{quoted(f'file://{folder.resolve()}')}]"]
