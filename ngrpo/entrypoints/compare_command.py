"""The command line that compares evaluations problem by problem.

    ngrpo compare RUN RUN [RUN ...]

RUN is the folder of an evaluation (its ``out``). The first is what the others are compared with, on the benchmarks and
problems that all of them have. With ``--json`` the figures are printed as JSON.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from rich import get_console

from ngrpo.entrypoints.arguments import SEEDS, whole
from ngrpo.entrypoints.error_handling import run_main


def main() -> None:
    """Prints a table a benchmark, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path, metavar="RUN")
    parser.add_argument("others", type=Path, metavar="RUN", nargs="+")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--seed", type=whole(0, SEEDS), default=0, help="of the bootstrap")
    arguments = parser.parse_args()
    from ngrpo.evaluation.paired_comparison import compare_runs
    from ngrpo.evaluation.tables import comparison_table

    runs = [arguments.first, *arguments.others]
    compared = compare_runs(runs, arguments.seed)
    names = list(map(str, runs))
    if arguments.json:
        print(json.dumps({"runs": names, "benchmarks": {n: asdict(c) for n, c in compared.items()}}, indent=2))
        return
    for name, comparison in compared.items():
        get_console().print(comparison_table(name, names, comparison))


if __name__ == "__main__":
    run_main(main)
