"""The command line that shows what a data set holds, and what training excludes and why.

    ngrpo inspect-data data.path=TRAIN.json data.eval_path=TEST.json model.path=MODEL

Takes the settings that ngrpo train takes, so that it tells of that very training; the model's tokenizer counts.
"""

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich import get_console
from rich.markup import escape
from rich.table import Table

from ngrpo.config.check import checked
from ngrpo.config.instantiate import build
from ngrpo.entrypoints.arguments import whole
from ngrpo.entrypoints.composition import composed
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.utils.sanitize import visible

if TYPE_CHECKING:
    from ngrpo.data.inspection import Double, Inspection


def main() -> None:
    """Prints a table for each source, or everything as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("settings", nargs="*", help="as of ngrpo train, e.g. data=math model.path=MODEL")
    parser.add_argument("--config-dir", type=Path, help="a folder of yaml files and modules of yours")
    parser.add_argument("--json", action="store_true", help="as JSON, doubles in full")
    parser.add_argument("--rows", type=whole(0), help="look at the first N rows of each source")
    parser.add_argument("--list", type=whole(0), default=5, help="how many doubles to list")
    arguments = parser.parse_intermixed_args()
    from ngrpo.entrypoints.console import silence_libraries

    silence_libraries()
    start = time.monotonic()
    found = inspect_configured(arguments.settings, arguments.rows, arguments.config_dir)
    seconds = time.monotonic() - start
    if arguments.json:
        sources = {where: asdict(inspection) for where, inspection in found.items()}
        print(json.dumps({"seconds": round(seconds, 2), "sources": sources}, indent=2))
        return
    for where, inspection in found.items():
        show(where, inspection, arguments.list)
    get_console().print(f"{seconds:z.1f} s")


def inspect_configured(settings: list[str], rows: int | None, folder: Path | None = None) -> "dict[str, Inspection]":
    """Inspects the data of the training that these settings configure."""
    from ngrpo.data.inspection import inspect

    config = checked(composed("train", settings, folder).config)
    tokenizer = build(config.model).tokenizer()
    return inspect(build(config.data, tokenizer=tokenizer, prompts_per_batch=1, seed=config.seed), rows)


def show(where: str, found: "Inspection", listed: int) -> None:
    """Prints one source."""
    console = get_console()
    console.rule(escape(f"{where}: {found.identity}"))
    console.print(counts_table(found))
    for title, numbers in (
        ("prompt tokens of usable rows", found.prompt_tokens),
        ("problems by difficulty", found.difficulties),
    ):
        if numbers:
            console.print(across(title, numbers))
    for title, doubles in (("duplicates", found.duplicates), ("also in the evaluation data", found.overlap)):
        if doubles and listed > 0:
            console.print(doubles_table(f"{title}: {len(doubles)}", doubles[:listed]))


def counts_table(found: "Inspection") -> Table:
    """Rows, usable ones, and the others by reason."""
    table = Table("", "rows")
    table.add_row("all", str(found.rows))
    table.add_row("usable", str(found.usable), end_section=True)
    for reason, count in found.excluded.items():
        table.add_row(f"excluded: {reason}", str(count))
    if found.control_text:
        table.add_row("with text of control tokens", str(found.control_text))
    table.add_section()
    table.add_row("duplicates", str(len(found.duplicates)))
    table.add_row("also in the evaluation data", str(len(found.overlap)))
    return table


def across(title: str, numbers: Mapping[str, int]) -> Table:
    """Returns numbers side by side."""
    table = Table(*numbers, title=title)
    table.add_row(*map(str, numbers.values()))
    return table


def doubles_table(title: str, doubles: "list[Double]") -> Table:
    """Returns which row repeats which."""
    table = Table("row", "same as", "same answer", "question", title=title)
    for double in doubles:
        question = " ".join(double.question.split())[:100]
        table.add_row(str(double.row), double.of, "yes" if double.same_answer else "no", escape(visible(question)))
    return table


if __name__ == "__main__":
    run_main(main)
