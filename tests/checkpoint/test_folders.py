"""Checkpoint folders are complete or absent, whatever a crash leaves behind."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ngrpo.checkpoint.folders import (
    FOLDER,
    STATE,
    complete_checkpoints,
    discard,
    how_to_resume,
    iteration_of,
    open_checkpoint,
    publish,
    resolve,
    temporary_folder,
)
from ngrpo.checkpoint.manifest import write as write_manifest
from ngrpo.checkpoint.saved_runs import record_save
from ngrpo.errors import SettingError
from ngrpo.utils.atomic_write import remove


def write(run: Path, number: int, text: str = "state") -> Path:
    """A finished checkpoint under its temporary name, as the callback writes it."""
    temporary = run / FOLDER / f"iteration-{number}.tmp"
    (temporary / "shards").mkdir(parents=True)
    (temporary / STATE).write_text(text)
    (temporary / "shards" / "0").write_text(text)
    return temporary


def save(run: Path, number: int, text: str = "state") -> Path:
    final = run / FOLDER / f"iteration-{number}"
    publish(write(run, number, text), final, {"algo": "grpo"})
    return final


def name_it(run: Path, number: int) -> Path:
    """What a crash before the pointer leaves: the final name only."""
    temporary = write(run, number)
    write_manifest(temporary, {}, number)
    return temporary.rename(run / FOLDER / f"iteration-{number}")


def names(run: Path) -> list[str]:
    return [path.name for path in complete_checkpoints(run)]


def test_publish_makes_a_checkpoint_complete_and_the_latest(tmp_path: Path) -> None:
    temporary = write(tmp_path, 5)
    assert complete_checkpoints(tmp_path) == []
    final = tmp_path / FOLDER / "iteration-5"
    publish(temporary, final, {})
    assert complete_checkpoints(tmp_path) == [final]
    assert (final / "shards" / "0").read_text() == "state"
    assert (tmp_path / FOLDER / "latest").read_text() == "iteration-5"
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["iteration-5", "latest"]


def test_publish_replaces_a_checkpoint_of_the_same_name(tmp_path: Path) -> None:
    save(tmp_path, 5, "old")
    final = save(tmp_path, 5, "new")
    assert (final / STATE).read_text() == "new"
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["iteration-5", "latest"]


def test_complete_is_in_the_order_of_writing_and_ignores_partial_folders(tmp_path: Path) -> None:
    """A run may go on, in its own folder, from an earlier iteration than its last."""
    for number in (9, 10, 100, 11):
        save(tmp_path, number)
    write(tmp_path, 200)
    assert [iteration_of(path) for path in complete_checkpoints(tmp_path)] == [9, 10, 100, 11]
    assert (tmp_path / FOLDER / "latest").read_text() == "iteration-11"
    assert resolve("latest", tmp_path, tmp_path).name == "iteration-11"
    assert complete_checkpoints(tmp_path / "nowhere") == []


def test_complete_ignores_folders_of_other_names(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / FOLDER / "iteration-1 (copy)").mkdir()
    (tmp_path / FOLDER / "iteration-best").mkdir()
    assert names(tmp_path) == ["iteration-1"]


def test_discard_removes_everything(tmp_path: Path) -> None:
    kept, doomed = save(tmp_path, 1), save(tmp_path, 2)
    discard(doomed)
    assert complete_checkpoints(tmp_path) == [kept]
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["iteration-1", "latest"]


def test_discard_leaves_a_checkpoint_that_is_being_written(tmp_path: Path) -> None:
    doomed = save(tmp_path, 2, "old")
    temporary = write(tmp_path, 2, "new")
    discard(doomed)
    assert (temporary / STATE).read_text() == "new"
    assert complete_checkpoints(tmp_path) == []


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
    assert complete_checkpoints(tmp_path) == []
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
    for name, number in (("a", 30), ("c", 20), ("b", 10)):
        save(tmp_path / "day" / name, number)
    # A run that began to save later and was killed has nothing to offer.
    write(tmp_path / "day" / "d", 1)
    assert resolve("latest", tmp_path / "new", tmp_path) == tmp_path / "day" / "b" / FOLDER / "iteration-10"


def set_clock(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    monkeypatch.setattr("ngrpo.checkpoint.manifest.time.time_ns", lambda: seconds * 10**9)


def test_a_clock_that_is_set_back_changes_no_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, clock in ((1, 900), (2, 1000), (3, 10), (4, 9), (5, 10**6), (6, 0)):
        set_clock(monkeypatch, clock)
        save(tmp_path, number)
        assert resolve("latest", tmp_path, tmp_path).name == (tmp_path / FOLDER / "latest").read_text()
        for folder in complete_checkpoints(tmp_path):  # nor does what a copy or a restored backup leaves
            os.utime(folder, (clock, clock))
        assert iteration_of(complete_checkpoints(tmp_path)[-1]) == number
    assert names(tmp_path) == [f"iteration-{number}" for number in range(1, 7)]


def test_an_iteration_that_is_made_again_is_the_last_whatever_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, clock in ((5, 100), (6, 200), (5, 50)):
        set_clock(monkeypatch, clock)
        save(tmp_path, number, f"of {clock}")
    assert names(tmp_path) == ["iteration-6", "iteration-5"]
    assert (resolve("latest", tmp_path, tmp_path) / STATE).read_text() == "of 50"


def test_the_run_that_saved_last_is_known_without_a_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, clock in (("a", 300), ("b", 200), ("c", 100)):
        set_clock(monkeypatch, clock)
        newest = save(tmp_path / "day" / name, 1)
        record_save(tmp_path, tmp_path / "day" / name)
    assert resolve("latest", tmp_path / "new", tmp_path) == newest
    shutil.rmtree(newest.parents[1])
    assert resolve("latest", tmp_path / "new", tmp_path).parents[1].name == "b"
    record_save(tmp_path, tmp_path / "day" / "a")
    assert resolve("latest", tmp_path / "new", tmp_path).parents[1].name == "a"
    record_save(tmp_path, tmp_path.parent / "elsewhere")
    assert (tmp_path / ".saved").read_text().splitlines() == ["day/b", "day/c", "day/a"]


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    other = save(tmp_path / "other", 1)
    run = tmp_path / "run"
    save(run, 2)
    for name in ("iteration-1", "iteration-3", "iteration-9.tmp", "iteration-8.old"):
        (run / FOLDER / name).symlink_to(other, target_is_directory=True)
    (run / FOLDER / "iteration-2" / "inner").symlink_to(other, target_is_directory=True)
    discard(run / FOLDER / "iteration-1")
    temporary_folder(run / FOLDER / "iteration-3")
    save(run, 3)
    discard(run / FOLDER / "iteration-2")
    assert sorted(path.name for path in (run / FOLDER).iterdir()) == ["iteration-3", "latest"]
    assert not (run / FOLDER / "iteration-3").is_symlink()
    assert open_checkpoint(other).run == {"algo": "grpo"}


def test_a_link_that_leads_nowhere_is_replaced(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "iteration-1").symlink_to(tmp_path / "gone")
    assert open_checkpoint(save(tmp_path, 1)).sequence == 1


def test_resolve_takes_a_runs_or_a_checkpoints_folder(tmp_path: Path) -> None:
    older, newer = save(tmp_path / "run", 1), save(tmp_path / "run", 2)
    anywhere = tmp_path / "elsewhere"
    assert resolve(str(tmp_path / "run"), anywhere, anywhere) == newer
    assert resolve(str(older), anywhere, anywhere) == older


def test_crash_between_name_and_pointer_loses_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    save(run, 1)
    newest = name_it(run, 2)
    assert (run / FOLDER / "latest").read_text() == "iteration-1"
    assert resolve("latest", run, tmp_path) == newest
    assert resolve("latest", tmp_path / "new", tmp_path) == newest


def test_crash_before_the_first_pointer_loses_nothing(tmp_path: Path) -> None:
    only = name_it(tmp_path / "run", 1)
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


def damaged(how: str, run: Path, number: int) -> None:
    folder = run / FOLDER / f"iteration-{number}"
    state = folder / STATE
    content = state.read_bytes()
    flipped = content[:2] + bytes([content[2] ^ 1]) + content[3:]
    steps: dict[str, Callable[[], object]] = {
        "cut short": lambda: state.write_bytes(content[:-1]),
        "flipped bit": lambda: state.write_bytes(flipped),
        "missing file": state.unlink,
        "missing shard": (folder / "shards" / "0").unlink,
        "no manifest": (folder / "manifest.json").unlink,
        "half a manifest": lambda: (folder / "manifest.json").write_text('{"format": 2, "fi'),
        "another manifest": lambda: (folder / "manifest.json").write_text("[]"),
    }
    steps[how]()


DAMAGE = {
    "cut short": "state.ckpt has 4 bytes instead of 5",
    "flipped bit": "the content of state.ckpt has changed",
    "missing file": "state.ckpt is missing",
    "missing shard": "shards/0 is missing",
    "no manifest": "it has no manifest.json",
    "half a manifest": "its manifest.json cannot be read",
    "another manifest": "its manifest.json cannot be read",
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_is_refused_and_the_last_good_one_named(how: str, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        save(tmp_path, number)
    assert open_checkpoint(tmp_path / FOLDER / "iteration-3").run == {"algo": "grpo"}
    damaged(how, tmp_path, 3)
    found = resolve("latest", tmp_path, tmp_path)
    with pytest.raises(SettingError) as caught:
        open_checkpoint(found)
    before = tmp_path / FOLDER / "iteration-2"
    assert str(caught.value) == (
        f"ckpt={tmp_path / FOLDER / 'iteration-3'} is damaged ({DAMAGE[how]}); the last good one before it is "
        f"ckpt='{before}'."
    )
    damaged("cut short", tmp_path, 2)
    with pytest.raises(SettingError, match="ckpt='.*iteration-1'"):
        open_checkpoint(found)
    damaged("cut short", tmp_path, 1)
    with pytest.raises(SettingError, match="no good one before it, so start again with ckpt=null"):
        open_checkpoint(found)


def test_another_format_is_refused(tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": 99, "unheard": 1}))
    with pytest.raises(SettingError) as caught:
        open_checkpoint(folder)
    assert str(caught.value) == (
        f"ckpt={folder} has the format 99 of another version of this program, which reads format 2; resume with the "
        "version that wrote it, or start a new run from its exported model."
    )


def test_what_killed_processes_left_is_removed_before_the_next_one_is_written(tmp_path: Path) -> None:
    save(tmp_path, 1)
    write(tmp_path, 2)
    (tmp_path / FOLDER / "iteration-0.old").mkdir()
    (tmp_path / FOLDER / "latest.tmp").touch()
    made = temporary_folder(tmp_path / FOLDER / "iteration-3")
    assert {path.name for path in (tmp_path / FOLDER).iterdir()} == {"iteration-1", "iteration-3.tmp", "latest"}
    assert list(made.iterdir()) == []


def test_what_remains_of_a_run(tmp_path: Path) -> None:
    assert how_to_resume(tmp_path) == "there is no checkpoint to resume from"
    save(tmp_path, 7)
    assert how_to_resume(tmp_path) == f"the last checkpoint is of iteration 7: resume with ckpt={tmp_path}"
