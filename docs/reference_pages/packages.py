"""The packages and modules of ngrpo, read without importing them."""

import ast
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
INTERNAL = ("ngrpo.compat",)
"""Packages without a page: they serve names of earlier versions."""


@dataclass(frozen=True)
class Module:
    """One file.

    Attributes:
        name: dotted name.
        tree: its syntax tree.
    """

    name: str
    tree: ast.Module

    @property
    def docstring(self) -> str:
        """The docstring, or nothing."""
        return ast.get_docstring(self.tree) or ""


@dataclass(frozen=True)
class Package:
    """One folder with an ``__init__.py``.

    Attributes:
        init: the package itself.
        modules: its files, packages within it left out.
    """

    init: Module
    modules: tuple[Module, ...]

    @property
    def name(self) -> str:
        """Dotted name."""
        return self.init.name

    @property
    def summary(self) -> str:
        """The docstring's first line."""
        return self.init.docstring.partition("\n")[0]


def packages() -> list[Package]:
    """Returns every package, outer ones first; links such as ``ngrpo/callbacks`` are followed."""
    return [made for made in _below(ROOT / "ngrpo", "ngrpo") if not made.name.startswith(INTERNAL)]


def _below(folder: Path, name: str) -> list[Package]:
    files = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
    own = Package(_read(folder / "__init__.py", name), tuple(_read(path, f"{name}.{path.stem}") for path in files))
    inner = sorted(path for path in folder.iterdir() if (path / "__init__.py").exists())
    return [own, *(package for path in inner for package in _below(path, f"{name}.{path.name}"))]


def _read(path: Path, name: str) -> Module:
    return Module(name, ast.parse(path.read_text()))
