"""Files are written whole, and removed without following links."""

from pathlib import Path

import pytest

from ngrpo.utils.atomic_write import atomic_folder, remove, write_text


def test_a_text_is_written_whole_into_a_folder_that_is_made(tmp_path: Path) -> None:
    write_text(tmp_path / "new" / "text", "one")
    write_text(tmp_path / "new" / "text", "two")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["text"]
    assert (tmp_path / "new" / "text").read_text() == "two"


def test_removal_takes_what_is_there_and_links_without_what_they_lead_to(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "inner").mkdir(parents=True)
    (kept / "inner" / "file").write_text("kept")
    doomed = tmp_path / "doomed"
    (doomed / "a" / "b").mkdir(parents=True)
    (doomed / "a" / "file").touch()
    for name, target in (("a/b/up", kept), ("folder", kept / "inner"), ("file", kept / "inner" / "file"), ("no", "no")):
        (doomed / name).symlink_to(target)
    (tmp_path / "link").symlink_to(kept, target_is_directory=True)
    for path in (tmp_path / "link", doomed, tmp_path / "nowhere"):
        remove(path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (kept / "inner" / "file").read_text() == "kept"
    remove(kept / "inner" / "file")
    assert list((kept / "inner").iterdir()) == []


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    final = tmp_path / "model"
    for text in ("one", "two"):
        (tmp_path / "model.tmp").mkdir()  # of a process that was killed
        with atomic_folder(final) as folder:
            (folder / text).write_text(text)
            assert list(folder.iterdir()) == [folder / text]

    def fail() -> None:
        with atomic_folder(final) as folder:
            (folder / "three").touch()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert [path.name for path in final.iterdir()] == ["two"]
