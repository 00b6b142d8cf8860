"""What ``--help`` says of the settings is what the configuration has."""

import re
import subprocess
import sys

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from places import ROOT

from ngrpo.config.schema import register

LINE = re.compile(r"^  ([\w.]+) +(.*?) +(\S+) +(\S+)$", flags=re.MULTILINE)


def composed(root: str, path: str) -> DictConfig:
    register()
    chosen = ["benchmark=[math500]"] if root == "evaluate" else []
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        return compose(root, overrides=[f"model.path={path}", *chosen])


@pytest.mark.parametrize("root", ["train", "evaluate"])
def test_it_lists_ten_settings_with_their_defaults_and_all_groups(root: str) -> None:
    command = [sys.executable, f"scripts/{root}.py", "--help"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    settings = [found for found in LINE.findall(printed) if found[0] not in ("setting", "ngrpo")]
    assert len(settings) == 10
    for model, place in (("demo", 2), ("other/model", 3)):
        config = composed(root, model)
        for found in settings:
            name = found[0].replace("NAME", "math500")
            value = OmegaConf.select(config, name, throw_on_missing=True, default="absent")
            assert value != "absent"
            if found[place] != "-":
                assert str(value).replace("None", "null") == found[place], name
    groups = {path.parent.relative_to(ROOT / "conf").as_posix() for path in (ROOT / "conf").rglob("*.yaml")}
    for group in groups - {"."}:
        listed = re.search(rf"^{group}: (.*)$", printed, flags=re.MULTILINE)
        if not group.startswith("hydra"):
            assert listed is not None
            assert set(listed[1].split(", ")) >= {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")}
    assert "_target_" not in printed


@pytest.mark.parametrize("script", ["train", "evaluate", "inspect_data", "export", "replay_step", "verify", "study"])
def test_it_does_not_wait_for_heavy_libraries(script: str) -> None:
    command = [sys.executable, "-X", "importtime", f"scripts/{script}.py", "--help"]
    imported = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stderr
    names = {line.rpartition("|")[2].strip() for line in imported.splitlines()}
    assert "argparse" in names
    assert names.isdisjoint({"torch", "lightning", "transformers", "sympy"})
