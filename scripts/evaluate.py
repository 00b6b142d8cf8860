"""Evaluates a model: ``python scripts/evaluate.py model.path=FOLDER``; see conf/evaluate.yaml."""

import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from ngrpo.config import register
from ngrpo.errors import SettingError

register()


@hydra.main(version_base="1.3", config_path="../conf", config_name="evaluate")
def main(config: DictConfig) -> None:
    """Runs one evaluation."""
    from ngrpo.console import quieten
    from ngrpo.evaluating import evaluate

    quieten()
    try:
        evaluate(config, Path(HydraConfig.get().runtime.output_dir))
    except SettingError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
