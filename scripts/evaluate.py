"""Evaluates a model: ``python scripts/evaluate.py model.path=FOLDER benchmark=[aime24,math500] n=32``.

See conf/evaluate.yaml. Interrupted, the same command with the same ``out=FOLDER`` keeps the finished problems.
"""

from pathlib import Path

import hydra
from omegaconf import DictConfig

from ngrpo.config.schema import register
from ngrpo.entrypoints.error_handling import handling_errors
from ngrpo.entrypoints.hydra_main import grant_typed, run

register()


@hydra.main(version_base="1.3", config_path="../conf", config_name="evaluate")
def main(config: DictConfig) -> None:
    """Runs one evaluation."""
    from ngrpo.entrypoints.console import silence_libraries
    from ngrpo.entrypoints.evaluate import evaluate
    from ngrpo.utils.standard_streams import survive_closed_streams

    survive_closed_streams()
    silence_libraries()
    with handling_errors():
        grant_typed(config)
        evaluate(config, Path(config.out))


if __name__ == "__main__":
    run(main)
