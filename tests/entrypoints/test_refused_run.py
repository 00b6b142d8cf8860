"""Refused commands leave no folder of their own, and every folder that was there or was named."""

from pathlib import Path

import pytest
from forked import server
from places import ROOT

from ngrpo.entrypoints.refused_run import removing_new
from ngrpo.errors import RunError, SettingError

NGRPO, SCRIPTS = str(ROOT / "ngrpo/__main__.py"), ROOT / "scripts"
NO_RATES = ("study", "run", "--quick")
NO_LEVELS = ("study", "levels", "--quick", "levels.paths=[]")


def refused(here: Path, *words: str) -> None:
    done = server().run((NGRPO, *words), here)
    assert done.status == 1, done.said
    assert done.said.startswith("error: ")


@pytest.mark.parametrize("words", [NO_RATES, NO_LEVELS, ("study", "run", "--quick", "tune.rates=[]")])
def test_a_refused_study_leaves_no_folder(words: tuple[str, ...], tmp_path: Path) -> None:
    refused(tmp_path, *words)
    assert list(tmp_path.iterdir()) == []


def test_a_study_that_was_there_stays(tmp_path: Path) -> None:
    folder = tmp_path / "outputs" / "study" / "quick"
    folder.mkdir(parents=True)
    refused(tmp_path, *NO_RATES)
    assert {path.name for path in folder.iterdir()} == {".lock", "study.json"}


def test_a_folder_that_is_named_stays(tmp_path: Path) -> None:
    refused(tmp_path, *NO_RATES, "--out", "named")
    assert (tmp_path / "named").is_dir()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("make_demo_model", ("--size", "adapted", "--output", "outputs/model")),
        ("make_demo_model", ("--size", "adapted", "--base", "no/such", "--output", "outputs/model")),
        ("explore_embedding", ("--model", "no/such", "--out", "outputs/pilot")),
        ("explore_embedding", ("not one token", "--out", "outputs/pilot")),
    ],
)
def test_what_is_refused_makes_no_folder(script: str, words: tuple[str, ...], tmp_path: Path) -> None:
    done = server().run((str(SCRIPTS / f"{script}.py"), *words), tmp_path, limit_s=60)
    assert done.status == 1, done.said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (("logger=wandb", "logger.wandb.mode=online"), "logger=wandb cannot start a run"),
        (("logger=[csv,tensorboard,wandb]", "logger.wandb.mode=online"), "logger=wandb cannot start a run"),
        (("callbacks.export.push_to=../../x",), "callbacks.export.push_to=../../x"),
        (("model.path=/nope/model",), "model.path=/nope/model is a path at which there is nothing"),
        (("model.path=./model",), "model.path=./model is a path at which there is nothing"),
        (("model.path=a/b/c",), "model.path=a/b/c is a path at which there is nothing"),
        (("data.path=/nope.json",), "data.path='/nope.json' names no source"),
    ],
)
def test_a_refused_training_says_nothing_else_and_leaves_nothing(
    settings: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "")
    refused_in(tmp_path, sentence, *settings)
    assert list(tmp_path.iterdir()) == []


def refused_in(here: Path, sentence: str, *settings: str) -> None:
    done = server().run((NGRPO, "train", *settings), here, limit_s=120)
    assert done.status == 1, done.said
    assert done.said.startswith(f"error: {sentence}"), done.said


def test_a_named_folder_keeps_what_was_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    settings = ("logger=[tensorboard,wandb]", "logger.wandb.mode=online", f"hydra.run.dir={mine}")
    refused_in(tmp_path, "logger=wandb cannot start a run", *settings)
    assert {path.name for path in mine.iterdir()} <= {"notes.txt", "train.log", ".lock"}


@pytest.mark.parametrize("error", [SettingError("no"), RunError("no"), ValueError("a defect")])
def test_what_holds_more_than_the_named_files_stays(error: Exception, tmp_path: Path) -> None:
    def refused_late() -> None:
        with removing_new(tmp_path / "new", {".lock"}):
            (tmp_path / "new").mkdir()
            (tmp_path / "new" / "make_model.log").touch()
            raise error

    with pytest.raises(type(error)):
        refused_late()
    assert (tmp_path / "new" / "make_model.log").exists()
