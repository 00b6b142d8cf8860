"""Every name that is imported from vLLM, wherever in a module, is in the installed version."""

import ast
from importlib import import_module

import pytest
from places import ROOT

pytest.importorskip("vllm.v1", reason="vLLM is not installed")
pytestmark = [pytest.mark.vllm, pytest.mark.vllm_smoke]

IMPORTS = sorted(
    {
        (node.module, alias.name)
        for path in (ROOT / "ngrpo").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "vllm"
        for alias in node.names
    }
)


def test_they_are_found() -> None:
    assert len(IMPORTS) > 15
    assert ("vllm.v1.outputs", "SamplerOutput") in IMPORTS


@pytest.mark.parametrize(("module", "name"), IMPORTS, ids=[".".join(pair) for pair in IMPORTS])
def test_a_name_is_in_vllm(module: str, name: str) -> None:
    imported = import_module(module)
    assert hasattr(imported, name) or import_module(f"{module}.{name}")
