"""Prints the nearest embedding rows of words: ``python scripts/show_neighbors.py seven finds apples``.

Neighbours are those that N-GRPO mixes: cosine of the input embedding, special, padded and never-trained rows left out.
A word is looked up as it stands inside a sentence, with the space before it, and must be one token.
"""

import argparse
import sys

from rich import get_console
from rich.table import Table

from ngrpo.exploration.neighbor_table import excluded_rows, neighbor_table
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import ModelSource


def main() -> None:
    """Builds the table and prints the words' rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="+")
    parser.add_argument("--model", default="demo", help="folder or hub name")
    parser.add_argument("--count", type=int, default=3)
    arguments = parser.parse_args()
    source = ModelSource(arguments.model)
    tokenizer = source.tokenizer()
    embedding = source.load().get_input_embeddings().weight.detach()
    excluded = excluded_rows(embedding, Vocabulary.of(tokenizer))
    neighbors = neighbor_table(embedding, arguments.count + 1, "cosine", excluded)
    table = Table("word", "nearest", title=f"{arguments.model}: {int(excluded.sum())} rows left out")
    for word in arguments.words:
        ids = tokenizer.encode(" " + word, add_special_tokens=False)
        if len(ids) != 1:
            sys.exit(f"error: {word!r} is {len(ids)} tokens for this tokenizer; choose words of one token")
        table.add_row(word, ", ".join(tokenizer.decode([n]).strip() for n in neighbors[ids[0]].tolist()[1:]))
    get_console().print(table)


if __name__ == "__main__":
    main()
