"""The command line that lists the exploration strategies and the algorithms.

    ngrpo methods

With ``--markdown`` the tables are those of docs/methods.md, which a test compares.
"""

import argparse

from rich import get_console
from rich.markup import escape
from rich.table import Column, Table

from ngrpo.entrypoints.error_handling import run_main
from ngrpo.entrypoints.hydra_main import CONF
from ngrpo.entrypoints.method_tables import MethodTable, algorithms, explorations


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="as Markdown")
    as_markdown = parser.parse_args().markdown
    tables = [explorations(CONF), algorithms(CONF)]
    if as_markdown:
        print("\n\n".join(table.markdown() for table in tables))
        return
    for table in tables:
        get_console().print(as_rich(table))


def as_rich(table: MethodTable) -> Table:
    """Returns the table for a terminal."""
    made = Table(*(Column(name.strip("`"), overflow="fold") for name in table.header), show_lines=True)
    for row in table.rows:
        made.add_row(*map(escape, row))
    return made


if __name__ == "__main__":
    run_main(main)
