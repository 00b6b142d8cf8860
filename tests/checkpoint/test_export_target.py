"""An export goes into a new or empty folder, or is refused before anything is loaded."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from places import ROOT

from ngrpo.checkpoint.export_target import check_target, new_folder
from ngrpo.errors import SettingError


def a_file(place: Path) -> Path:
    (place / "file").write_text("mine")
    return place / "file"


def full_folder(place: Path) -> Path:
    a_file(place)
    return place


def own_run(place: Path) -> Path:
    (place / "checkpoints" / "iteration-1").mkdir(parents=True)
    return place


def linked(place: Path) -> Path:
    (place / "link").symlink_to(place)
    return place / "link"


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "a file": (a_file, "is a file"),
    "in a file": (lambda place: a_file(place) / "model", "lies in .*/file, which is a file"),
    "deep in a file": (lambda place: a_file(place) / "a" / "model", "lies in .*/file, which is a file"),
    "a full folder": (full_folder, "is a folder with files in it"),
    "the run": (own_run, "is a folder with files in it"),
    "a checkpoint": (
        lambda place: own_run(place) / "checkpoints" / "iteration-1",
        "lies among the checkpoints of a run",
    ),
    "beside checkpoints": (
        lambda place: own_run(place) / "checkpoints" / "iteration-2",
        "lies among the checkpoints of a run",
    ),
    "a link": (linked, "is a link to "),
    "a long name": (lambda place: place / ("x" * 300), "cannot be looked at"),
    "a device": (lambda place: Path("/dev/null"), "is a file"),
    "no disk": (lambda place: Path("/proc/model"), "is a place where nothing may be written"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str, tmp_path: Path) -> None:
    make, why = REFUSED[what]
    target = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    remedy = r"give a folder that is not there yet, or an empty one\."
    with pytest.raises(SettingError, match=rf"^TARGET=\S+ {why}.*; {remedy}$"):
        check_target(target)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["new", "new/deep", "empty", "."])
def test_what_is_written_is_there_in_the_end(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "empty").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "empty" if name == "." else tmp_path / "here")
    target = Path(name)
    check_target(target)
    with new_folder(target) as folder:
        (folder / "config.json").write_text("{}")
        (folder / "more").mkdir()
        assert target.exists() == (name in ("empty", "."))
    assert sorted(os.listdir(target)) == ["config.json", "more"]
    assert not list(tmp_path.rglob(".*"))
    assert (target.stat().st_mode & 0o777) == (0o777 & ~umask())


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    def half(target: Path) -> None:
        with new_folder(target) as folder:
            (folder / "half").touch()
            raise OSError("full")

    for name in ("new", "empty"):
        with pytest.raises(OSError, match="full"):
            half(tmp_path / name)
    assert list(tmp_path.rglob("*")) == [tmp_path / "empty"]


def umask() -> int:
    before = os.umask(0)
    os.umask(before)
    return before


def test_the_script_says_so_in_one_sentence(tmp_path: Path) -> None:
    target = a_file(tmp_path)
    done = subprocess.run(
        [sys.executable, "scripts/export.py", str(tmp_path), str(target)], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: TARGET={target} is a file; give a folder that is not there yet, or an empty one.\n"
    assert target.read_text() == "mine"
