"""The command line that writes a run's report page anew, or a page that compares several runs.

    ngrpo report RUN
    ngrpo report RUN OTHER ... --out comparison.html

A page is one file that opens without a network. It is made from ``record/`` and ``summary.json`` in a run's folder,
which training writes; the run may be going on. Of several runs, the first is what the others are compared with.
"""

import argparse
from pathlib import Path

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.errors import SettingError

_COMPARISON = "comparison.html"


def main() -> None:
    """Writes the page and says where it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a run's folder")
    parser.add_argument("--out", type=Path, help=f"of a comparison: the page's file; {_COMPARISON} without it")
    arguments = parser.parse_args()
    print(f"wrote {_write(arguments.runs, arguments.out)}")


def _write(runs: list[Path], out: Path | None) -> Path:
    # Heavy libraries, which --help does not wait for.
    from ngrpo.report.comparison_page import write_comparison
    from ngrpo.report.page import write_page

    if len(runs) > 1:
        return write_comparison(runs, Path(_COMPARISON) if out is None else out)
    if out is not None:
        raise SettingError(f"--out {out} is for several runs: the page of one lies in its folder; take it out.")
    return write_page(runs[0])


if __name__ == "__main__":
    run_main(main)
