"""The light core: with the packages of the extras away, it explores and replays, and the rest says what to install."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from places import ROOT
from prose import PAGES

from ngrpo.utils.optional_packages import EXTRAS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BROUGHT = {"jinja2", "mpmath", "sympy", "transformers"}
"""Packages of extras that PyTorch needs too, and a newer one of the core's."""

HIDE = f"""
import sys
from importlib.machinery import PathFinder

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = {sorted({*EXTRAS, "pytorch_lightning"})!r}
        return None if name.partition(".")[0] in hidden else PathFinder.find_spec(name, path, target)

sys.meta_path = [Hiding if finder is PathFinder else finder for finder in sys.meta_path]
"""


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs code in a process that does not find the packages of the extras."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", HIDE + code]
    return subprocess.run(command, cwd=folder, env=environment, check=False, text=True, capture_output=True)


def names(requirements: list[str]) -> set[str]:
    """Returns the import names of requirements, those of this project's own extras left out."""
    found = {re.split(r"[<>=\[]", one)[0].replace("-", "_") for one in requirements if not one.startswith("ngrpo[")}
    return {{"hydra_core": "hydra"}.get(name, name) for name in found}


def test_the_extras_are_those_that_messages_name() -> None:
    extras = PROJECT["optional-dependencies"]
    assert names(PROJECT["dependencies"]) == {"numpy", "safetensors", "tokenizers", "torch", "transformers"}
    for extra in ("train", "math"):
        named = {package for package, its in EXTRAS.items() if its == extra}
        assert names(extras[extra]) - BROUGHT == named
    assert "ngrpo[math]" in extras["train"]
    assert any(one.startswith("ngrpo[train,") for one in extras["dev"])


CORE = ["types", "exploration", "replay", "modeling", "rollout", "algo"]
ABOVE = [
    "rollout.worker",
    "rollout.served_engine",
    "rollout.prefetch",
    "rollout.auto",
    "rollout.recovery",
    "rollout.dynamic_sampling",
]
"""Modules of the training loop."""


def test_importing_the_core_loads_none_of_them(tmp_path: Path) -> None:
    modules = sorted(
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for room in CORE
        for path in (ROOT / "ngrpo" / room).rglob("*.py")
    )
    wanted = [name for name in modules if name.removeprefix("ngrpo.") not in ABOVE and ".vllm" not in name]
    optional = ("triton", "peft", "cudnn")
    code = f"""
from importlib import import_module
for name in {wanted!r}:
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {optional!r}:
            raise
print(len({wanted!r}), [name for name in {sorted(EXTRAS)!r} if name in sys.modules])
"""
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == f"{len(wanted)} []\n"
    assert len(wanted) > 90


def test_it_makes_rollouts_and_replays_them(tmp_path: Path) -> None:
    code, *_ = re.findall(r"^```python\n(import torch\n.*?)^```$", PAGES["docs/plugins.md"], re.MULTILINE | re.DOTALL)
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]


COMMAND = "from ngrpo.entrypoints.command import main\nsys.argv = ['ngrpo', *{words!r}]\nmain()"


@pytest.mark.parametrize("words", [["train"], ["evaluate", "model.path=demo"], ["report", "outputs"]])
def test_a_command_says_what_to_install(words: list[str], tmp_path: Path) -> None:
    done = run(COMMAND.format(words=words), tmp_path)
    assert done.returncode == 1
    pattern = rf"error: ngrpo {words[0]} needs \w+, which is not installed; run pip install 'ngrpo\[train\]'\.\n"
    assert re.fullmatch(pattern, done.stderr), done.stderr


def test_help_needs_none(tmp_path: Path) -> None:
    assert "usage: ngrpo COMMAND" in run(COMMAND.format(words=["--help"]), tmp_path).stdout


def test_a_function_says_what_to_install(tmp_path: Path) -> None:
    for name, extra in (("train", "train"), ("sample", "train")):
        done = run(f"import ngrpo\nngrpo.{name}", tmp_path)
        assert f"ngrpo.{name} needs" in done.stderr
        assert f"run pip install 'ngrpo[{extra}]'." in done.stderr.splitlines()[-1]
    done = run("from ngrpo.rewards.plain_texts import TextReward\nTextReward()", tmp_path)
    assert "run pip install 'ngrpo[math]'." in done.stderr.splitlines()[-1]
