"""The imports of a package's modules, read from the source without running it."""

import ast
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import resolve_name
from pathlib import Path


@dataclass(frozen=True)
class Module:
    """One module.

    Attributes:
        is_package: whether its file is an ``__init__.py``.
        imports: everything that it imports, also inside functions; modules of the graph by their own name, of a
            library the dotted path as written.
        at_start: those of them that importing it imports.
    """

    is_package: bool
    imports: frozenset[str]
    at_start: frozenset[str]


@dataclass(frozen=True)
class ImportGraph:
    """The modules of one top-level package by name."""

    modules: Mapping[str, Module]

    @classmethod
    def of(cls, folder: Path) -> "ImportGraph":
        """Reads a package, through links to folders too."""
        found = {_name(folder, path): path for path in _files(folder)}
        return cls({name: _read(name, path, found) for name, path in found.items()})

    def package(self, name: str) -> str:
        """Returns the package that a module lies in; a package's own name for its ``__init__``."""
        return name if self.modules[name].is_package else name.rpartition(".")[0]

    def below(self, *packages: str) -> list[str]:
        """Returns the modules in some packages, or of these very names."""
        return [name for name in self.modules if is_below(name, *packages)]

    @cached_property
    def arrows(self) -> list[tuple[str, str]]:
        """Importing and imported module, both of this package."""
        return [
            (name, other)
            for name, module in sorted(self.modules.items())
            for other in sorted(module.imports)
            if other in self.modules
        ]

    def needed(self, name: str) -> set[str]:
        """Returns everything that a module imports, directly or through others, with the packages on the way."""
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            one = waiting.pop()
            if one not in seen:
                seen.add(one)
                waiting += self.modules[one].imports if one in self.modules else ()
                waiting += [one.rpartition(".")[0]] if "." in one else []
        return seen - {name}


def is_below(name: str, *packages: str) -> bool:
    """Says whether a dotted name is one of some packages, or lies in one."""
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


def circular(arrows: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns the arrows of a graph that lie on a circle."""
    following: dict[str, set[str]] = {}
    for start, end in arrows:
        following.setdefault(start, set()).add(end)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            one = waiting.pop()
            if one not in seen:
                seen.add(one)
                waiting += following.get(one, ())
        return seen

    reach = {name: reached(name) for arrow in arrows for name in arrow}
    return sorted((start, end) for start, end in arrows if start in reach[end])


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, files in os.walk(folder, followlinks=True):
        yield from (Path(parent) / file for file in files if file.endswith(".py"))


def _name(folder: Path, path: Path) -> str:
    parts = path.relative_to(folder.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def _read(name: str, path: Path, modules: Mapping[str, Path]) -> Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if "." not in name:
        tree = _ImportedWhenAskedFor().visit(tree)
    is_package = path.name == "__init__.py"
    package = name if is_package else name.rpartition(".")[0]

    def named(nodes: Iterator[ast.AST]) -> frozenset[str]:
        return frozenset(one for node in nodes for one in _imported(node, package, modules))

    return Module(is_package, named(ast.walk(tree)), named(_outside_functions(tree)))


class _ImportedWhenAskedFor(ast.NodeTransformer):
    """Takes away what the package itself names for type checkers alone: its interface, which is above all else."""

    def visit_If(self, node: ast.If) -> ast.AST | None:  # noqa: N802
        return None if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" else node


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _outside_functions(child)


def _imported(node: ast.AST, package: str, modules: Mapping[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        start = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module or ""
        for alias in node.names:
            full = f"{start}.{alias.name}"
            yield full if full in modules else start
