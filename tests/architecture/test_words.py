"""The field's words: identifiers do not use those that this code once had in their stead."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import ROOT

WORDS = (
    "door", "apart", "bystander", "lifeline", "handover", "homeward", "outward", "elsewhere", "spoiled", "crew",
    "begun", "dealt", "mend", "carry", "carries", "carried",
)  # fmt: skip
"""Error handling, isolated, null engine, process watch, weight transfer, gather, scatter, remote, non-finite,
scheduler, started, assigned, fix and state are said instead."""

FILES = [
    Path(parent) / file
    for folder in ("ngrpo", "scripts")
    for parent, _, files in os.walk(ROOT / folder, followlinks=True)
    for file in files
    if file.endswith(".py")
]


def identifiers(source: str) -> Iterator[str]:
    """Yields the names in a source text, without those in strings and comments."""
    for node in ast.walk(ast.parse(source)):
        yield from (value for key, value in ast.iter_fields(node) if key != "value" and isinstance(value, str))


def own_words(source: str) -> set[str]:
    """Returns the identifiers that have one of `WORDS` among their parts."""
    parts = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
    return {name for name in identifiers(source) if {part.lower() for part in parts.findall(name)} & set(WORDS)}


def test_identifiers_use_the_fields_words() -> None:
    found = {str(path.relative_to(ROOT)): own_words(path.read_text(encoding="utf-8")) for path in FILES}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    ["class LifelineThread: ...", "def go(*, door=1): ...", "x.handover_s = 1", "import a as _mend", "spoiled: int = 1",
     "from apart import x", "f(crew=1)", "import ngrpo.door"],
)  # fmt: skip
def test_a_word_is_found_wherever_it_names_something(source: str) -> None:
    assert own_words(source)


@pytest.mark.parametrize("source", ["indoor = outdoors = 1", "x = 'door'  # apart"])
def test_other_words_texts_and_comments_are_left_alone(source: str) -> None:
    assert not own_words(source)
