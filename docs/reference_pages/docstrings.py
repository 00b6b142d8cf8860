"""Docstrings as the pages need them."""

import inspect
import re
from typing import Any

import griffe
from hydra.utils import get_object


def meanings(owner: Any) -> dict[str, str]:
    """Returns what a docstring says of attributes and arguments, by name.

    Those of base classes count too, and those of the classes that its first line refers to: "see `ngrpo...`".
    """
    found: dict[str, str] = {}
    for part in _lineage(owner):
        found = _sections(part.__doc__ or "") | found
    return found


def _lineage(owner: Any) -> list[Any]:
    parts = [part for part in owner.__mro__ if part is not object] if inspect.isclass(owner) else [owner]
    references = re.findall(r"(?:see|and) `(ngrpo\.[\w.]+)`", (owner.__doc__ or "").partition("\n")[0])
    return [*parts, *(get_object(name) for name in references)]


def _sections(text: str) -> dict[str, str]:
    parsed = griffe.Docstring(inspect.cleandoc(text)).parse("google", warnings=False)
    kinds = (griffe.DocstringSectionKind.attributes, griffe.DocstringSectionKind.parameters)
    items = [item for part in parsed if part.kind in kinds for item in part.value]
    return {item.name: " ".join(item.description.split()) for item in items}


def summary(owner: Any) -> str:
    """Returns the first paragraph on one line."""
    return " ".join(inspect.cleandoc(owner.__doc__ or "").partition("\n\n")[0].split())


def body(text: str) -> str:
    """Returns a docstring up to its first section of attributes, arguments, errors or the like."""
    return re.split(r"\n\n(?:Attributes|Args|Returns|Raises|Yields):\n", inspect.cleandoc(text))[0]
