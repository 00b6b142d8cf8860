"""Files and folders that are written whole or not at all, and the removal of outdated ones."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Writes a text, whole or not at all; makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".tmp")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def remove(path: Path) -> None:
    """Deletes a file, or a folder with what is in it, if it exists; of a link, the link alone."""
    if path.is_dir() and not path.is_symlink():
        for inside in path.iterdir():
            remove(inside)
        path.rmdir()
    elif os.path.lexists(path):
        path.unlink()


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Gives an empty folder to write into, which takes the place of ``path`` when the block ends without an error."""
    aside, replaced = path.with_name(path.name + ".tmp"), path.with_name(path.name + ".old")
    for left in (aside, replaced):
        remove(left)
    aside.mkdir(parents=True)
    try:
        yield aside
    except BaseException:
        remove(aside)
        raise
    if os.path.lexists(path):
        path.rename(replaced)
    aside.rename(path)
    remove(replaced)


def apply_umask(path: Path) -> None:
    """Gives a file the permissions that a new one has, and so all files in a folder: safetensors makes them private."""
    mask = os.umask(0o077)
    os.umask(mask)
    for file in path.rglob("*") if path.is_dir() else [path]:
        if file.is_file() and not file.is_symlink():
            file.chmod(0o666 & ~mask)
