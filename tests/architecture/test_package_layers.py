"""The layers of the package: which module may import which."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from import_graph import ImportGraph, circular, is_below
from places import ROOT

ENGINE_CHOICE = "ngrpo.rollout.auto"
"""The one module that imports from packages below its own which import from there: it chooses an engine."""

COMMAND = "ngrpo.__main__"
"""``python -m ngrpo``: it imports an entry point, nothing imports it, and Python wants it beside the packages."""

Rule = Callable[[ImportGraph], list[str]]


def at_the_top(graph: ImportGraph) -> list[str]:
    """Nothing lies beside the packages but the package's own file, the errors and the command."""
    tops = {name for name, module in graph.modules.items() if name.count(".") == 1 and not module.is_package}
    return sorted(tops - {"ngrpo.errors", COMMAND})


def circles_of_rooms(graph: ImportGraph) -> list[str]:
    """The packages of the first level, each with all that is in it, form layers."""

    def room(name: str) -> str:
        return ".".join(graph.package(name).split(".")[:2])

    return _circles({(room(one), room(other)) for one, other in graph.arrows if one != COMMAND})


def circles_of_packages(graph: ImportGraph) -> list[str]:
    """Packages form layers at every level, a package and those inside it too."""
    arrows = [(one, other) for one, other in graph.arrows if one not in (ENGINE_CHOICE, COMMAND)]
    return _circles({(graph.package(one), graph.package(other)) for one, other in arrows})


def _circles(arrows: set[tuple[str, str]]) -> list[str]:
    return [f"{one} -> {other}" for one, other in circular({(one, other) for one, other in arrows if one != other})]


def mathematics_and_strategies(graph: ImportGraph) -> list[str]:
    """Objectives and exploration need neither Lightning nor vLLM, directly or through other modules."""
    return [
        f"{name} needs {other}"
        for name in graph.below("ngrpo.algo", "ngrpo.exploration")
        for other in sorted(graph.needed(name))
        if other in ("lightning", "pytorch_lightning", "vllm")
    ]


def only_its_engine_imports_vllm(graph: ImportGraph) -> list[str]:
    """One package knows vLLM."""
    inside = graph.below("ngrpo.rollout.vllm")
    return [
        f"{name} imports {other}"
        for name, module in graph.modules.items()
        if name not in inside
        for other in sorted(module.imports)
        if is_below(other, "vllm")
    ]


def the_verifier_stands_alone(graph: ImportGraph) -> list[str]:
    """Comparing answers needs nothing else of this package."""
    inside = graph.below("ngrpo.rewards.answers")
    return [f"{one} imports {other}" for one, other in graph.arrows if one in inside and other not in inside]


def errors_import_nothing(graph: ImportGraph) -> list[str]:
    """Errors can be imported from anywhere."""
    return sorted(graph.modules["ngrpo.errors"].imports)


def studies_are_imported_by_entry_points_when_they_run(graph: ImportGraph) -> list[str]:
    """The study stands apart from the product."""
    return [
        f"{one} imports {other}"
        for one, other in graph.arrows
        if is_below(other, "ngrpo.study")
        and not is_below(one, "ngrpo.study")
        and (not is_below(one, "ngrpo.entrypoints") or other in graph.modules[one].at_start)
    ]


CLEAN = {
    "__init__.py": "import ngrpo.compat.old\nif TYPE_CHECKING:\n    from ngrpo.entrypoints.study import main",
    "errors.py": "",
    "compat/__init__.py": "",
    "compat/old.py": "",
    "algo/__init__.py": "",
    "algo/loss.py": "import torch\nfrom ngrpo.types.records import Record",
    "types/__init__.py": "",
    "types/records.py": "from ngrpo.errors import SettingError",
    "exploration/__init__.py": "",
    "exploration/strategy.py": "",
    "exploration/runtime/__init__.py": "",
    "exploration/runtime/bound.py": "",
    "rollout/__init__.py": "",
    "rollout/base.py": "",
    "rollout/auto.py": "def choose():\n    from ngrpo.rollout.vllm.engine import Engine",
    "rollout/vllm/__init__.py": "",
    "rollout/vllm/engine.py": "import vllm.config\nfrom ngrpo.rollout import base",
    "rewards/__init__.py": "",
    "rewards/answers/__init__.py": "",
    "rewards/answers/read.py": "import sympy\nfrom . import values",
    "rewards/answers/values.py": "",
    "study/__init__.py": "",
    "study/table.py": "",
    "entrypoints/__init__.py": "",
    "entrypoints/study.py": "def main():\n    from ngrpo.study import table",
}
"""A tree that keeps every rule; each case below breaks one of them."""

CASES: list[tuple[Rule, dict[str, str], list[str]]] = [
    (at_the_top, {"module.py": ""}, ["ngrpo.module"]),
    (
        circles_of_rooms,
        {"types/x.py": "def f():\n    import ngrpo.algo.loss"},
        ["ngrpo.algo -> ngrpo.types", "ngrpo.types -> ngrpo.algo"],
    ),
    (
        circles_of_rooms,  # through packages that do not import each other
        {"exploration/strategy.py": "import ngrpo.algo.loss", "types/records.py": "import ngrpo.exploration.runtime"},
        ["ngrpo.algo -> ngrpo.types", "ngrpo.exploration -> ngrpo.algo", "ngrpo.types -> ngrpo.exploration"],
    ),
    (
        circles_of_packages,
        {
            "exploration/strategy.py": "import ngrpo.exploration.runtime.bound",
            "exploration/runtime/bound.py": "from .. import strategy",
        },
        ["ngrpo.exploration -> ngrpo.exploration.runtime", "ngrpo.exploration.runtime -> ngrpo.exploration"],
    ),
    (
        circles_of_packages,
        {"rollout/base.py": "from ngrpo.rollout.vllm import engine"},
        ["ngrpo.rollout -> ngrpo.rollout.vllm", "ngrpo.rollout.vllm -> ngrpo.rollout"],
    ),
    (
        mathematics_and_strategies,
        {"types/records.py": "def f():\n    from lightning.pytorch import Trainer"},
        ["ngrpo.algo.loss needs lightning"],
    ),
    (
        mathematics_and_strategies,
        {"exploration/runtime/__init__.py": "import vllm"},
        ["ngrpo.exploration.runtime needs vllm", "ngrpo.exploration.runtime.bound needs vllm"],
    ),
    (
        only_its_engine_imports_vllm,
        {"rollout/base.py": "def f():\n    from vllm.utils import thing"},
        ["ngrpo.rollout.base imports vllm.utils"],
    ),
    (
        the_verifier_stands_alone,
        {"rewards/answers/values.py": "from ngrpo.errors import SettingError"},
        ["ngrpo.rewards.answers.values imports ngrpo.errors"],
    ),
    (errors_import_nothing, {"errors.py": "def f():\n    import re"}, ["re"]),
    (
        studies_are_imported_by_entry_points_when_they_run,
        {"rollout/base.py": "def f():\n    import ngrpo.study.table"},
        ["ngrpo.rollout.base imports ngrpo.study.table"],
    ),
    (
        studies_are_imported_by_entry_points_when_they_run,
        {"entrypoints/study.py": "if True:\n    from ngrpo.study.table import x"},
        ["ngrpo.entrypoints.study imports ngrpo.study.table"],
    ),
]
RULES = list(dict.fromkeys(rule for rule, _, _ in CASES))


def made(files: Mapping[str, str], folder: Path) -> ImportGraph:
    """Writes a package and reads it."""
    for name, text in files.items():
        path = folder / "ngrpo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return ImportGraph.of(folder / "ngrpo")


@pytest.fixture(scope="module")
def product() -> ImportGraph:
    return ImportGraph.of(ROOT / "ngrpo")


@pytest.mark.parametrize("rule", RULES)
def test_the_package_keeps_its_layers(rule: Rule, product: ImportGraph) -> None:
    assert rule(product) == [], rule.__doc__


@pytest.mark.parametrize("rule", RULES)
def test_a_tree_in_layers_passes(rule: Rule, tmp_path: Path) -> None:
    assert rule(made(CLEAN, tmp_path)) == []


@pytest.mark.parametrize(("rule", "change", "found"), CASES)
def test_each_rule_finds_what_breaks_it(rule: Rule, change: dict[str, str], found: list[str], tmp_path: Path) -> None:
    assert rule(made(CLEAN | change, tmp_path)) == found


def test_linked_folders_are_read(product: ImportGraph) -> None:
    assert "ngrpo.callbacks.rollout" in product.modules
    assert len(product.arrows) > 500
