"""Checkpoint folders are complete or absent, whatever a crash leaves behind."""

import os
from pathlib import Path

import pytest

from ngrpo.checkpoints import FOLDER, STATE, complete, discard, iteration_of, publish, remove, resolve
from ngrpo.errors import SettingError


def write(run: Path, number: int, text: str = "state") -> Path:
    """A finished checkpoint under its temporary name, as the callback writes it."""
    temporary = run / FOLDER / f"iteration-{number}.tmp"
    (temporary / "shards").mkdir(parents=True)
    (temporary / STATE).write_text(text)
    (temporary / "shards" / "0").write_text(text)
    return temporary


def save(run: Path, number: int, text: str = "state") -> Path:
    final = run / FOLDER / f"iteration-{number}"
    publish(write(run, number, text), final)
    return final


def age(checkpoint: Path, seconds: int) -> None:
    """Sets back the time at which everything in the run's checkpoint folder was written."""
    for path in [*checkpoint.parent.rglob("*"), checkpoint.parent]:
        status = path.stat()
        os.utime(path, (status.st_atime - seconds, status.st_mtime - seconds))


def names(run: Path) -> list[str]:
    return [path.name for path in complete(run)]


def test_publish_makes_a_checkpoint_complete_and_the_latest(tmp_path: Path) -> None:
    temporary = write(tmp_path, 5)
    assert complete(tmp_path) == []
    final = tmp_path / FOLDER / "iteration-5"
    publish(temporary, final)
    assert complete(tmp_path) == [final]
    assert (final / "shards" / "0").read_text() == "state"
    assert (tmp_path / FOLDER / "latest").read_text() == "iteration-5"
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["iteration-5", "latest"]


def test_publish_replaces_a_checkpoint_of_the_same_name(tmp_path: Path) -> None:
    save(tmp_path, 5, "old")
    final = save(tmp_path, 5, "new")
    assert (final / STATE).read_text() == "new"
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["iteration-5", "latest"]


def test_complete_is_ordered_by_iteration_and_ignores_partial_folders(tmp_path: Path) -> None:
    for number in (10, 9, 100):
        save(tmp_path, number)
    write(tmp_path, 200)
    assert names(tmp_path) == ["iteration-9", "iteration-10", "iteration-100"]
    assert [iteration_of(path) for path in complete(tmp_path)] == [9, 10, 100]
    assert complete(tmp_path / "nowhere") == []


def test_complete_ignores_folders_of_other_names(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / FOLDER / "iteration-1 (copy)").mkdir()
    (tmp_path / FOLDER / "iteration-best").mkdir()
    assert names(tmp_path) == ["iteration-1"]


def test_discard_removes_everything(tmp_path: Path) -> None:
    kept, doomed = save(tmp_path, 1), save(tmp_path, 2)
    discard(doomed)
    assert complete(tmp_path) == [kept]
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["iteration-1", "latest"]


def test_discard_leaves_a_checkpoint_that_is_being_written(tmp_path: Path) -> None:
    doomed = save(tmp_path, 2, "old")
    temporary = write(tmp_path, 2, "new")
    discard(doomed)
    assert (temporary / STATE).read_text() == "new"
    assert complete(tmp_path) == []


def test_interrupted_discard_leaves_nothing_that_looks_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    doomed = save(tmp_path, 2)

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            discard(doomed)
    assert complete(tmp_path) == []
    save(tmp_path, 2)
    discard(tmp_path / FOLDER / "iteration-2")
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["latest"]


def test_remove_of_what_is_absent_does_nothing(tmp_path: Path) -> None:
    remove(tmp_path / "nowhere")
    folder = write(tmp_path, 1)
    remove(folder)
    assert not folder.exists()


def test_resolve_takes_this_runs_latest(tmp_path: Path) -> None:
    run = tmp_path / "run"
    save(run, 9)
    newest = save(run, 10)
    save(tmp_path / "later", 3)
    write(run, 11)
    assert resolve("latest", run, tmp_path) == newest


def test_resolve_takes_the_run_that_saved_last(tmp_path: Path) -> None:
    first, second, third = (save(tmp_path / "day" / name, number) for name, number in (("a", 30), ("b", 10), ("c", 20)))
    for checkpoint, seconds in ((first, 300), (second, 100), (third, 200)):
        age(checkpoint, seconds)
    # A run that began to save later and was killed has nothing to offer.
    write(tmp_path / "day" / "d", 1)
    assert resolve("latest", tmp_path / "new", tmp_path) == second


def test_resolve_takes_a_runs_or_a_checkpoints_folder(tmp_path: Path) -> None:
    older, newer = save(tmp_path / "run", 1), save(tmp_path / "run", 2)
    anywhere = tmp_path / "elsewhere"
    assert resolve(str(tmp_path / "run"), anywhere, anywhere) == newer
    assert resolve(str(older), anywhere, anywhere) == older


def test_crash_between_name_and_pointer_loses_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    save(run, 1)
    newest = run / FOLDER / "iteration-2"
    write(run, 2).rename(newest)
    assert (run / FOLDER / "latest").read_text() == "iteration-1"
    assert resolve("latest", run, tmp_path) == newest
    assert resolve("latest", tmp_path / "new", tmp_path) == newest


def test_crash_before_the_first_pointer_loses_nothing(tmp_path: Path) -> None:
    only = tmp_path / "run" / FOLDER / "iteration-1"
    write(tmp_path / "run", 1).rename(only)
    assert resolve("latest", tmp_path / "run", tmp_path) == only
    assert resolve("latest", tmp_path / "new", tmp_path) == only


@pytest.mark.parametrize("where", ["nowhere", "empty", "partial", "partial/checkpoints/iteration-1.tmp", "file"])
def test_resolve_refuses_what_holds_no_complete_checkpoint(where: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    write(tmp_path / "partial", 1)
    ckpt = str(tmp_path / where)
    with pytest.raises(SettingError) as caught:
        resolve(ckpt, tmp_path / "new", tmp_path)
    assert str(caught.value).startswith(f"ckpt={ckpt} finds no complete checkpoint in {ckpt}; ")
    with pytest.raises(SettingError) as caught:
        resolve("latest", tmp_path / "new", tmp_path)
    assert str(caught.value).startswith(f"ckpt=latest finds no complete checkpoint in {tmp_path}; ")
