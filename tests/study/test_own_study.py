"""A study, and a strategy in it, that lie in a user's own folder."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import succeed
from omegaconf import OmegaConf
from places import ROOT

from ngrpo.errors import SettingError
from ngrpo.study.definition import load_study
from ngrpo.study.study_jobs import StudyJobs
from ngrpo.study.untrained import training_config
from ngrpo.training.run_length import RunLength

CONF = ROOT / "conf"
PROJECT = ROOT / "ngrpo" / "entrypoints" / "project_template"
STUDY = """# @package _global_
defaults: [quick, _self_]
name: mine
train: [experiment=study_demo, debug=study_quick, "data.path=${config_dir:}/problems.jsonl"]
arms:
  blend_grpo: {overrides: [exploration=blend_top_two, algo=grpo], seeds: 1}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """What ``ngrpo init`` writes, and a study with its strategy."""
    home = Path(shutil.copytree(PROJECT, tmp_path / "mine"))
    (home / "study").mkdir()
    (home / "study" / "mine.yaml").write_text(STUDY)
    path, known = list(sys.path), set(sys.modules)
    yield home
    sys.path[:] = path
    for name in set(sys.modules) - known:
        if name.startswith("my_"):
            del sys.modules[name]


class Commands:
    """Notes the commands in place of running them."""

    def __init__(self) -> None:
        self.lines: list[list[str]] = []

    def run(self, command: list[str], log: Path) -> float:
        self.lines.append(command)
        return 0.0


def test_the_folder_is_given_to_every_run(folder: Path, tmp_path: Path) -> None:
    jobs = StudyJobs(load_study(CONF, "mine", [], folder), tmp_path, folder)
    runner = Commands()
    jobs._train(runner, tmp_path / "run", jobs.train_settings("blend_grpo", 0, 1e-4, RunLength(2)), RunLength(2))
    jobs._evaluate(runner, "demo", tmp_path / "run", jobs.study.test)
    assert len(runner.lines) == 2
    assert all(f"--config-dir={folder}" in line for line in runner.lines)


def test_its_strategy_may_be_named_in_this_process_too(folder: Path, tmp_path: Path) -> None:
    study = load_study(CONF, "mine", ["iterations=7"], folder)
    settings = StudyJobs(study, tmp_path).train_settings("blend_grpo", 0, 1e-4, RunLength(2))
    config = training_config(CONF, settings, folder)
    assert OmegaConf.select(config, "exploration._target_") == "my_strategy.BlendTopTwo"
    assert config.data.path == f"{folder}/problems.jsonl"
    assert study.iterations == 7


def test_without_the_folder_nothing_of_it_is_known(folder: Path, tmp_path: Path) -> None:
    done = succeed("study.py", "model", "--study", "mine", "--config-dir", str(folder), "--out", str(tmp_path / "out"))
    assert "error" not in done
    with pytest.raises(AssertionError, match="study=mine is not known"):
        succeed("study.py", "model", "--study", "mine", "--out", str(tmp_path / "out"))


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"--config-dir .*nowhere is no folder"):
        load_study(CONF, "quick", [], tmp_path / "nowhere")


@pytest.mark.parametrize("line", ["train: [--config-dir, modules]", "evaluate: [model.trust_remote_code=true]"])
def test_a_study_in_the_folder_permits_itself_nothing(line: str, folder: Path) -> None:
    (folder / "study" / "strange.yaml").write_text(f"# @package _global_\ndefaults: [quick, _self_]\n{line}\n")
    with pytest.raises(SettingError, match="a permission that a file gives itself"):
        load_study(CONF, "strange", [], folder)


@pytest.mark.parametrize("part", ["hydra: {job: {env_set: {A: b}}}", "hydra: {callbacks: {x: {_target_: my.Own}}}"])
def test_a_study_in_the_folder_gives_hydra_nothing_to_run(part: str, folder: Path) -> None:
    (folder / "study" / "strange.yaml").write_text(f"# @package _global_\ndefaults: [quick, _self_]\n{part}\n")
    with pytest.raises(AssertionError, match="is set by a file of the configuration and could run any code"):
        succeed("study.py", "model", "--study", "strange", "--config-dir", str(folder))
