"""The console command: its list of subcommands, one sentence for what it does not know, and each subcommand's help."""

import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from forked import server
from places import ROOT

from ngrpo.entrypoints.command import SUBCOMMANDS, main
from ngrpo.entrypoints.neighbors_command import METRICS
from ngrpo.exploration.neighbor_table import SIMILARITIES

NGRPO = str(ROOT / "ngrpo/__main__.py")
HEAVY = {"torch", "lightning", "transformers", "sympy"}


def ngrpo(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["ngrpo", *words])
    main()


def test_it_is_installed_under_its_name() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"] == {
        "ngrpo": "ngrpo.entrypoints.command:main"
    }


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_its_help_lists_the_subcommands(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ngrpo(monkeypatch, *words)
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert listed == list(SUBCOMMANDS)


@pytest.mark.parametrize(
    ("word", "remedy"),
    [("trian", "did you mean ngrpo train?"), ("exploration=neighbor", "choose one of train, evaluate, sample, init, ")],
)
def test_one_sentence_for_an_unknown_subcommand(
    word: str, remedy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        ngrpo(monkeypatch, word)
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert said.startswith(f"error: {word!r} is no command of ngrpo; {remedy}")
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_the_help_of_a_subcommand_is_its_own(name: str, tmp_path: Path) -> None:
    done = server().run((NGRPO, name, "--help"), tmp_path)
    assert done.status == 0, done.said
    assert f"ngrpo {name}" in done.said
    assert "scripts/" not in done.said
    assert list(tmp_path.iterdir()) == []


def test_help_does_not_wait_for_heavy_libraries(tmp_path: Path) -> None:
    """In one process, so that Python starts once: each help ends with SystemExit."""
    code = f"""
import runpy, sys
for name in {list(SUBCOMMANDS)}:
    sys.argv = ["ngrpo", name, "--help"]
    try:
        runpy.run_module("ngrpo", run_name="__main__")
    except SystemExit as end:
        assert not end.code, name
    assert {HEAVY}.isdisjoint(sys.modules), name
"""
    start = time.monotonic()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert time.monotonic() - start < 30


def test_the_metrics_of_neighbors_are_those_of_the_table() -> None:
    assert set(METRICS) == set(SIMILARITIES)


def test_a_refused_command_leaves_no_folder(tmp_path: Path) -> None:
    done = server().run((NGRPO, "train", "algo.prompts_per_batch=0"), tmp_path)
    assert done.status == 1
    assert done.said == "error: algo.prompts_per_batch=0 is too small: set it to 1 or more.\n"
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_config_dir_is_asked_for_where_it_is_missing(tmp_path: Path) -> None:
    done = server().run((NGRPO, "train", "data.path=${config_dir:}/problems.jsonl"), tmp_path)
    assert done.status == 1
    sentence = "data.path: ${config_dir:} is the folder of --config-dir; add --config-dir FOLDER."
    assert done.said == f"error: {sentence}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_named_keeps_the_log_of_a_refused_command(tmp_path: Path) -> None:
    done = server().run((NGRPO, "train", "algo.prompts_per_batch=0", "hydra.run.dir=run"), tmp_path)
    assert done.status == 1
    assert "prompts_per_batch" in (tmp_path / "run" / "train.log").read_text()


def test_an_earlier_run_stays_when_another_command_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outputs" / "earlier").mkdir(parents=True)
    server().run((NGRPO, "train", "algo.prompts_per_batch=0"), tmp_path)
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == ["earlier"]
