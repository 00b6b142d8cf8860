"""The wheel, built from the source distribution: one top-level package, whole, and nothing twice."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from places import ROOT

pytest.importorskip("hatchling", reason="hatchling builds the wheel")


def build(kind: str, source: Path, out: Path) -> Path:
    """Builds an archive from a source tree, and returns it."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)], cwd=source, check=True)
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(build("sdist", ROOT, folder / "sdist")) as archive:
        archive.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    return build("wheel", source, folder / "wheel")


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_it_has_one_top_level_package_and_all_that_is_in_it(wheel: Path) -> None:
    here = [Path(parent) / file for parent, _, files in os.walk(ROOT / "ngrpo", followlinks=True) for file in files]
    packaged = [name for name in names(wheel) if ".dist-info/" not in name]
    assert sorted(packaged) == sorted(str(file.relative_to(ROOT)) for file in here if file.suffix != ".pyc")
    for some in (
        "callbacks/rollout.py",
        "conf/train.yaml",
        "modeling/demo/model.safetensors",
        "report/assets/page.css",
    ):
        assert f"ngrpo/{some}" in packaged


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Path:
    """The wheel alone in a folder for the Python path."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    return tmp_path / "installed"


def run(code: Sequence[str], installed: Path, cwd: Path) -> None:
    """Runs lines in a process that finds libraries and the installed wheel, and no editable install."""
    libraries = Path(torch.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": f"{installed}:{libraries}"}
    subprocess.run([sys.executable, "-S", "-c", "\n".join(code)], cwd=cwd, env=environment, check=True)


def test_callbacks_are_imported_from_the_package_alone(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    run(
        [
            "import importlib.util, ngrpo.callbacks.rollout as found",
            f"assert found.__file__.startswith({str(installed)!r}), found.__file__",
            "assert importlib.util.find_spec('callbacks') is None",
        ],
        installed,
        tmp_path / "empty",
    )


def test_callbacks_of_the_user_are_found(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "callbacks.py").write_text("mine = True")
    run(["import ngrpo, callbacks", "assert callbacks.mine"], installed, tmp_path)


def test_it_has_the_console_command(wheel: Path) -> None:
    (entry_points,) = (name for name in names(wheel) if name.endswith(".dist-info/entry_points.txt"))
    with zipfile.ZipFile(wheel) as archive:
        assert "ngrpo = ngrpo.entrypoints.command:main" in archive.read(entry_points).decode()


def test_a_project_of_the_user_is_written_and_trained_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "callbacks.py").write_text("raise RuntimeError('nobody asked for this file')\n")
    command = "import sys; from ngrpo.entrypoints.command import main; sys.argv[0] = 'ngrpo'; main()"
    environment = os.environ | {"PYTHONPATH": f"{installed}:{Path(torch.__file__).parents[1]}", "OMP_NUM_THREADS": "1"}
    for words in (["init", "mine"], ["train", "--config-dir", "mine", "experiment=mine", "trainer.iterations=5"]):
        subprocess.run([sys.executable, "-S", "-c", command, *words], cwd=here, env=environment, check=True)
    (run,) = here.glob("outputs/*/*")
    assert json.loads((run / "summary.json").read_text())["methods"]["exploration"] == "blend_top_two"
    assert "blend_top_two" in (run / "report.html").read_text()
    assert list((run / "tensorboard").iterdir())
