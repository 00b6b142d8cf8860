"""The command line of the pilot study of N-GRPO, for any model.

    python scripts/explore_embedding.py --model MODEL --out FOLDER

Where noise and mixing lead: chosen tokens under isotropic Gaussian noise and under a mixture with their
neighbours, decoded back to the nearest token. A vector left the semantic neighbourhood if that token is neither the
anchor nor among its nearest ones. Prints how often, and writes ``pilot.png`` (a projection) and ``pilot.json``.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from rich import get_console
from rich.table import Table
from rich.text import Text

from ngrpo.entrypoints.arguments import real, whole
from ngrpo.entrypoints.console import silence_libraries
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.exploration.neighbor_table import SIMILARITIES
from ngrpo.modeling.loading import ModelSource
from ngrpo.report.analysis.pilot import PilotSettings, pilot
from ngrpo.report.analysis.pilot_figure import numbers, pilot_figure
from ngrpo.report.analysis.single_token_words import EmbeddedVocabulary
from ngrpo.utils.numbers import fixed, percent
from ngrpo.utils.sanitize import visible

WORDS = ["+", "-", "=", "(", "7", "of", "is", "the", "and", "seven", "books"]
"""Symbols, function words and a few others; the first `_TAKEN` that are one token of the model are taken."""

_TAKEN = 10


def main() -> None:
    """Makes the study."""
    arguments = parsed()
    silence_libraries()
    settings = PilotSettings(
        tuple(arguments.scale), arguments.k, arguments.neighborhood, arguments.samples, arguments.metric
    )
    vocabulary = EmbeddedVocabulary.of(ModelSource(arguments.model))
    words = arguments.words or [word for word in WORDS if vocabulary.find(word) is not None][:_TAKEN]
    anchors = vocabulary.tokens(words)
    perturbations = pilot(vocabulary, anchors, settings)
    found = numbers(vocabulary, anchors, perturbations, settings)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "pilot.json").write_text(json.dumps({"model": arguments.model, **found}, indent=2) + "\n")
    pilot_figure(vocabulary, anchors, perturbations).savefig(arguments.out / "pilot.png", dpi=100)
    get_console().print(table_of(found, arguments.model, settings))
    print(f"wrote {arguments.out / 'pilot.png'} and {arguments.out / 'pilot.json'}")


def parsed() -> argparse.Namespace:
    """Reads the command line."""
    defaults = PilotSettings()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="one-token words; default: symbols and function words")
    parser.add_argument("--model", default="demo", help="folder or hub name")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument(
        "--scale", type=real(0), nargs="+", default=defaults.scales, help="of the noise, over the RMS of the table"
    )
    parser.add_argument("--k", type=whole(0, 1000), default=defaults.k, help="tokens of a mixture, the anchor included")
    parser.add_argument(
        "--neighborhood", type=whole(0, 100_000), default=defaults.neighborhood, help="tokens that count as near"
    )
    parser.add_argument("--samples", type=whole(0, 1_000_000), default=defaults.samples, help="vectors a token")
    parser.add_argument("--metric", choices=SIMILARITIES, default=defaults.metric)
    return parser.parse_args()


def table_of(found: dict[str, Any], model: str, settings: PilotSettings) -> Table:
    """Returns a row a token: how often its vectors left its neighbourhood."""
    title = f"{model}: vectors that left the {settings.neighborhood} nearest tokens"
    table = Table("token", *found["left"], title=title)
    for token in found["tokens"]:
        table.add_row(Text(visible(token["token"]).strip()), *(percent(share, 1) for share in token["left"].values()))
    table.add_section()
    table.add_row("all", *(percent(share, 1) for share in found["left"].values()))
    table.add_row("moved by", *(f"{fixed(length, 2)} |E|" for length in found["moved"].values()))
    return table


if __name__ == "__main__":
    run_main(main)
