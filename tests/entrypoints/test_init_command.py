"""The project that ``ngrpo init`` writes: refused where something is, tested by its own test, and trained with."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from forked import server
from places import ROOT

from ngrpo.config.permissions import modules_of
from ngrpo.entrypoints.init_command import TEMPLATE, write_project
from ngrpo.errors import SettingError

NGRPO = str(ROOT / "ngrpo/__main__.py")
SHORT = ("trainer.iterations=1", "algo.prompts_per_batch=4", "rollout.group_size=2", "rollout.max_new_tokens=24")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A project in a folder that has a ``callbacks.py`` of its own beside it."""
    (tmp_path / "callbacks.py").write_text("raise RuntimeError('nobody asked for this file')\n")
    write_project(tmp_path / "mine")
    return tmp_path / "mine"


def test_it_writes_the_template_and_says_how_to_go_on(tmp_path: Path) -> None:
    done = server().run((NGRPO, "init", "my own"), tmp_path)
    assert done.said == "wrote 'my own'; next: ngrpo train --config-dir 'my own' experiment=mine\n"
    written = {path.relative_to(tmp_path / "my own") for path in (tmp_path / "my own").rglob("*") if path.is_file()}
    shipped = {path.relative_to(TEMPLATE) for path in TEMPLATE.rglob("*") if path.is_file()}
    assert written == {path for path in shipped if "__pycache__" not in path.parts}
    assert {"README.md", "my_strategy.py", "my_reward.py", "test_mine.py"} <= {str(path) for path in written}


def test_it_refuses_what_is_not_empty(tmp_path: Path) -> None:
    write_project(tmp_path)  # an empty folder will do
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(SettingError, match="is not empty; give a new folder"):
        write_project(tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"
    with pytest.raises(SettingError, match="is a file"):
        write_project(tmp_path / "README.md")


def test_its_own_test_passes(mine: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=mine, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_training_uses_its_strategy_reward_and_data(mine: Path) -> None:
    command = (NGRPO, "train", "--config-dir", "mine", "experiment=mine", *SHORT)
    done = server().run(command, mine.parent, limit_s=120)
    assert done.status == 0, done.said
    (run,) = mine.parent.glob("outputs/*/*")
    summary = json.loads((run / "summary.json").read_text())
    assert summary["methods"]["exploration"] == "blend_top_two"
    page = (run / "report.html").read_text()
    assert "blend_top_two" in page
    assert "my_strategy.BlendTopTwo(" in page
    assert "<code>exploration=blend_top_two</code>" in page
    settings = (run / ".hydra" / "config.yaml").read_text()
    for used in ("my_strategy.BlendTopTwo", "my_reward.BoxedNumber", str(mine / "problems.jsonl")):
        assert used in settings


def test_only_the_typed_folder_permits_its_modules(mine: Path) -> None:
    """The same yaml files by another way: nothing is imported, since nobody typed --config-dir."""
    command = (
        NGRPO,
        "train",
        f"hydra.searchpath=[file://{mine}]",
        "experiment=mine",
        f"data.path={mine}",
        "data.eval_path=null",
    )
    done = server().run(command, mine.parent, path=[str(mine)])
    assert done.status == 1
    assert "my_reward.BoxedNumber is outside the packages that a configuration may name" in done.said


def test_a_file_beside_the_yaml_is_named_by_the_typed_folder(mine: Path) -> None:
    done = server().run((NGRPO, "train", f"hydra.searchpath=[file://{mine}]", "experiment=mine"), mine.parent)
    assert done.status == 1
    assert "add --config-dir FOLDER" in done.said
    assert done.said.count("\n") == 1


def test_inspect_data_takes_the_folder_too(mine: Path) -> None:
    done = server().run((NGRPO, "inspect-data", "--config-dir", "mine", "experiment=mine", "--json"), mine.parent)
    assert done.status == 0, done.said
    (found,) = json.loads(done.said)["sources"].values()
    assert found["usable"] == 64


def test_no_module_of_the_project_is_hidden_by_another() -> None:
    assert {"my_strategy", "my_reward"} <= set(modules_of(TEMPLATE))
