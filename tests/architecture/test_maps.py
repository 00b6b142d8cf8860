"""The maps: each package's docstring has a line for every module and package in it, and says what that one says."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import ROOT

PACKAGES = sorted(
    Path(parent) for parent, _, files in os.walk(ROOT / "ngrpo", followlinks=True) if "__init__.py" in files
)
ENTRY = re.compile(r"^- ``([\w/.]+)``: (.+(?:\n  .+)*)$", re.MULTILINE)
QUESTIONS = ("What", "Which", "How", "When", "Whether", "Where", "Why", "Who")


def docstring(file: Path) -> str:
    """Returns a module's docstring."""
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""


def summary(file: Path) -> str:
    """Returns the first paragraph of a module's docstring, without its full stop."""
    return " ".join(docstring(file).partition("\n\n")[0].split()).removesuffix(".")


def contents(package: Path) -> Iterator[tuple[str, Path]]:
    """Yields what a package's map must have: the name of a module or package there, and the file that describes it."""
    for path in package.iterdir():
        if path.suffix == ".py" and path.name != "__init__.py":
            yield path.name, path
        elif (path / "__init__.py").exists():
            yield f"{path.name}/", path / "__init__.py"


def mapped(package: Path) -> dict[str, str]:
    """Returns the map in a package's docstring."""
    return {name: " ".join(text.split()) for name, text in ENTRY.findall(docstring(package / "__init__.py"))}


def differences(package: Path) -> list[str]:
    """Returns where a package's map and the package differ."""
    says, has = mapped(package), dict(contents(package))
    missing = [f"{name} is missing" for name in has if name not in says]
    gone = [f"{name} is not there" for name in says if not (package / name).exists()]
    other = [f"{name}: {summary(has[name])}" for name in has if name in says and says[name] != summary(has[name])]
    return sorted(missing + gone + other)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(ROOT)))
def test_a_packages_docstring_is_its_map(package: Path) -> None:
    assert differences(package) == []


def test_a_map_is_compared_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "__init__.py").write_text('"""Inner parts."""')
    (tmp_path / "one.py").write_text('"""The first,\nin two lines.\n\nMore of it.\n"""')
    (tmp_path / "two.py").write_text('"""The second."""')
    (tmp_path / "__init__.py").write_text(
        '"""A package.\n\n- ``inner/``: Inner parts\n- ``one.py``: The first, in\n  two lines\n'
        '- ``three.py``: The third\n- ``two.py``: Something else\n"""'
    )
    assert differences(tmp_path) == ["three.py is not there", "two.py: The second"]
    (tmp_path / "four.py").write_text("")
    assert "four.py is missing" in differences(tmp_path)


def test_module_docstrings_say_what_a_module_is() -> None:
    modules = [file for package in PACKAGES for _, file in contents(package)]
    assert len(modules) > 200
    opening = {str(file.relative_to(ROOT)): docstring(file).partition(" ")[0] for file in modules}
    assert {file: word for file, word in opening.items() if word in ("", *QUESTIONS)} == {}
