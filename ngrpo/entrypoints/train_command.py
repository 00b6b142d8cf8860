"""The command line of a training run: ``ngrpo train exploration=neighbor algo=gspo``.

Heavy libraries are imported inside the function, so that ``--help`` does not wait for them.
"""

from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from ngrpo.config.schema import register
from ngrpo.entrypoints.error_handling import handling_errors
from ngrpo.entrypoints.hydra_main import CONF, grant_typed, run


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
def _train(config: DictConfig) -> None:
    """Runs one training."""
    from ngrpo.entrypoints.console import silence_libraries
    from ngrpo.entrypoints.refused_run import removing_unused
    from ngrpo.entrypoints.run_parts import chosen_methods
    from ngrpo.entrypoints.train import train
    from ngrpo.utils.standard_streams import survive_closed_streams

    survive_closed_streams()
    silence_libraries()
    runtime = HydraConfig.get().runtime
    run_dir = Path(runtime.output_dir)
    with handling_errors(), removing_unused(run_dir):
        grant_typed(config)
        train(config, run_dir, chosen_methods(runtime.choices))


def main() -> None:
    """Trains as the command line says."""
    register()
    run(_train)


if __name__ == "__main__":
    main()
