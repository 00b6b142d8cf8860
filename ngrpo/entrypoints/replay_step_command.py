"""The command line that replays a skipped optimiser step.

    ngrpo replay-step RUN/bad_steps/FILE.pt --checkpoint RUN

The file holds the run's settings; what they may run is said here, whatever they permit themselves.
"""

import argparse
from pathlib import Path

from rich import get_console
from rich.table import Table

from ngrpo.config.permissions import StoredPermissions
from ngrpo.config.schema import register
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.utils.numbers import significant


def main() -> None:
    """Prints the loss and gradient norm of each sample, and marks those that are not finite."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", type=Path, help="a file of a run's bad_steps folder")
    parser.add_argument("--checkpoint", help="a run's folder or one of its checkpoints; without: the starting weights")
    StoredPermissions.add_options(parser)
    arguments = parser.parse_args()
    from ngrpo.checkpoint.folders import resolve
    from ngrpo.entrypoints.replay_step import replay
    from ngrpo.training.skipped_steps import load

    register()
    bad = load(arguments.step)
    given = arguments.checkpoint
    checkpoint = None if given is None else resolve(given, Path(given), Path("outputs"))
    reports = replay(bad, checkpoint, StoredPermissions.of(arguments))
    table = Table("problem", "tokens", "loss", "gradient norm", "")
    for one in reports:
        remark = "left out" if one.left_out else "" if one.finite else "not finite"
        table.add_row(str(one.problem), str(one.tokens), significant(one.loss), significant(one.grad_norm), remark)
    console = get_console()
    console.print(f"iteration {bad.iteration + 1}, optimiser step {bad.step + 1} was skipped: {bad.reason}")
    console.print(table)
    console.print(
        f"{sum(not one.finite for one in reports)} of {len(reports)} samples are not finite with these weights"
    )


if __name__ == "__main__":
    run_main(main)
