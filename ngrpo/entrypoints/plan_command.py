"""The command line that plans a run: memory per device, tokens and seconds an iteration, and what to change.

    ngrpo plan [--card H200 | --memory-gib 80] [--changes] SETTINGS

SETTINGS are those of ``ngrpo train``. Nothing is trained or downloaded: the model's config.json is enough. --card takes
the memory and the measured speed of a card that is not here (H100, H200), --memory-gib the memory alone; --changes says
what would lower the peak even if the run fits.
"""

import argparse
import sys
import tempfile

import hydra
from omegaconf import DictConfig

from ngrpo.config.schema import register
from ngrpo.entrypoints.arguments import real
from ngrpo.entrypoints.error_handling import handling_errors
from ngrpo.entrypoints.hydra_main import CONF, grant_typed, run

_options = argparse.Namespace(card=None, memory_gib=None, changes=False)


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="train")
def _plan(config: DictConfig) -> None:
    """Plans one training."""
    from ngrpo.entrypoints.console import silence_libraries
    from ngrpo.entrypoints.plan import plan

    silence_libraries()
    with handling_errors():
        grant_typed(config)
        plan(config, _options.card, _options.memory_gib, _options.changes)


def main() -> None:
    """Plans as the command line says."""
    parser = argparse.ArgumentParser(
        prog="ngrpo plan",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # Hydra has options of its own
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--card", help="plan for this card in place of the GPU that is here: H100 or H200")
    where.add_argument("--memory-gib", type=real(0), help="plan for a device with so much memory")
    parser.add_argument("--changes", action="store_true", help="say what would lower the peak even if the run fits")
    _, settings = parser.parse_known_args(namespace=_options)
    register()
    with tempfile.TemporaryDirectory() as folder:  # Hydra's log needs one
        sys.argv = [sys.argv[0], *settings, f"hydra.run.dir={folder}"]
        run(_plan)


if __name__ == "__main__":
    main()
