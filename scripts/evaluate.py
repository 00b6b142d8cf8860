"""Evaluates a model: ``python scripts/evaluate.py model.path=FOLDER benchmark=[aime24,math500] n=32``.

See conf/evaluate.yaml. Interrupted, the same command with the same ``out=FOLDER`` keeps the finished problems.
"""

import sys
from pathlib import Path

import hydra
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
        evaluate(config, Path(config.out))
    except SettingError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
