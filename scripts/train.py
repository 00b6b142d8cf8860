"""Trains a policy: ``python scripts/train.py exploration=neighbor algo=gspo``; see conf/train.yaml."""

from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from ngrpo.config import register
from ngrpo.door import door
from ngrpo.hydra_main import grant_typed, run

register()


@hydra.main(version_base="1.3", config_path="../conf", config_name="train")
def main(config: DictConfig) -> None:
    """Runs one training."""
    from ngrpo.console import quieten
    from ngrpo.streams import outlive_readers
    from ngrpo.training import train

    outlive_readers()
    quieten()
    runtime = HydraConfig.get().runtime
    methods = {group: runtime.choices[group] for group in ("algo", "exploration", "rollout")}
    with door():
        grant_typed(config)
        train(config, Path(runtime.output_dir), methods)


if __name__ == "__main__":
    run(main)
