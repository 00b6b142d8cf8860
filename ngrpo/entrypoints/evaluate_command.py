"""The command line of an evaluation: ``ngrpo evaluate model.path=FOLDER``.

Heavy libraries are imported inside the function, so that ``--help`` does not wait for them.
"""

from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from ngrpo.config.schema import register
from ngrpo.entrypoints.error_handling import handling_errors
from ngrpo.entrypoints.hydra_main import CONF, grant_typed, run


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="evaluate")
def _evaluate(config: DictConfig) -> None:
    """Runs one evaluation."""
    from ngrpo.entrypoints.console import silence_libraries
    from ngrpo.entrypoints.evaluate import evaluate
    from ngrpo.entrypoints.refused_run import removing_unused
    from ngrpo.utils.standard_streams import survive_closed_streams

    survive_closed_streams()
    silence_libraries()
    with handling_errors(), removing_unused(Path(HydraConfig.get().runtime.output_dir)):
        grant_typed(config)
        evaluate(config, Path(config.out))


def main() -> None:
    """Evaluates as the command line says."""
    register()
    run(_evaluate)


if __name__ == "__main__":
    main()
