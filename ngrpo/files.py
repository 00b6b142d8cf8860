"""Files that are there whole or not at all."""

from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Writes a text, whole or not at all; makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".tmp")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
