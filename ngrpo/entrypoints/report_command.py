"""The command line that writes a run's report page anew.

    ngrpo report RUN

The page is one file that opens without a network. It is made from ``record/`` and ``summary.json`` in the run's folder,
which training writes; the run may be going on.
"""

import argparse
from pathlib import Path

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.report.page import write_page


def main() -> None:
    """Writes the page and says where it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run's folder")
    arguments = parser.parse_args()
    print(f"wrote {write_page(arguments.run)}")


if __name__ == "__main__":
    run_main(main)
