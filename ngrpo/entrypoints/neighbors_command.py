"""The command line that prints the nearest embedding rows of words.

    ngrpo neighbors seven finds apples

Neighbours are those that N-GRPO mixes: special, padded and never-trained rows left out. A word is looked up as it
stands inside a sentence, with the space before it, else without, and must be one token. ``--search`` takes all tokens
that contain a piece of text instead.
"""

import argparse
from typing import TYPE_CHECKING

from rich import get_console
from rich.table import Table
from rich.text import Text

from ngrpo.entrypoints.arguments import whole
from ngrpo.entrypoints.error_handling import run_main
from ngrpo.utils.sanitize import visible

if TYPE_CHECKING:
    from torch import Tensor

    from ngrpo.report.analysis.single_token_words import EmbeddedVocabulary


METRICS = ("cosine", "l2", "l1", "dot")
"""The keys of `ngrpo.exploration.neighbor_table.SIMILARITIES`, known without importing PyTorch."""


def main() -> None:
    """Prints the words' rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--search", metavar="TEXT", help="tokens that contain this")
    parser.add_argument("--limit", type=whole(0), default=20, help="most tokens of a search")
    parser.add_argument("--model", default="demo", help="folder or hub name")
    parser.add_argument("--count", type=whole(1, 1000), default=3, help="neighbours of a token")
    parser.add_argument("--metric", choices=METRICS, default="cosine")
    arguments = parser.parse_args()
    if not arguments.words and arguments.search is None:
        parser.error("give words, or --search TEXT")
    import torch

    from ngrpo.entrypoints.console import silence_libraries
    from ngrpo.modeling.loading import ModelSource
    from ngrpo.report.analysis.single_token_words import EmbeddedVocabulary

    silence_libraries()
    vocabulary = EmbeddedVocabulary.of(ModelSource(arguments.model))
    tokens = vocabulary.tokens(arguments.words).tolist()
    if arguments.search is not None:
        tokens += vocabulary.search(arguments.search)[: arguments.limit]
    get_console().print(table_of(vocabulary, torch.tensor(tokens, dtype=torch.int64), arguments))


def table_of(vocabulary: "EmbeddedVocabulary", tokens: "Tensor", arguments: argparse.Namespace) -> Table:
    """Returns a row a token."""
    from ngrpo.exploration.neighbor_table import nearest_rows

    left_out = int(vocabulary.excluded.sum())
    table = Table("token", "id", "nearest", title=f"{arguments.model}, {arguments.metric}: {left_out} rows left out")
    rows = nearest_rows(vocabulary.embedding, tokens, arguments.count + 1, arguments.metric, vocabulary.excluded)
    for token, row in zip(tokens.tolist(), rows.tolist(), strict=True):
        shown = [visible(vocabulary.text(number)).strip() for number in (token, *row[1:])]
        # Text, since a token may be what the console takes for markup.
        note = " (never a neighbour)" if vocabulary.excluded[token] else ""
        table.add_row(Text(shown[0] + note), str(token), Text(", ".join(shown[1:])))
    return table


if __name__ == "__main__":
    run_main(main)
