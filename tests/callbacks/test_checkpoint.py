"""Which iterations are saved and which of them are kept."""

from pathlib import Path

import pytest
from fake_run import batch, trainer

from callbacks.checkpoint import IterationCheckpoint
from ngrpo.checkpoints import complete, iteration_of
from ngrpo.errors import SettingError


def save(path: Path, weights_only: bool) -> None:
    """Stands for the trainer's: the state is the name of the folder it was written to."""
    assert path.parent.name.endswith(".tmp")
    assert not weights_only
    path.write_text(path.parent.name)


def run(folder: Path, iterations: int, stop_at: int | None = None, **settings: int) -> list[int]:
    """Returns the iterations whose checkpoints are there in the end."""
    callback = IterationCheckpoint(folder, **settings)
    made = trainer(save_checkpoint=save)
    callback.setup(made, None, "fit")
    for iteration in range(iterations):
        made.should_stop = iteration + 1 == stop_at
        callback.on_train_batch_end(made, None, None, batch(iteration), 0)
    return [iteration_of(found) for found in complete(folder)]


@pytest.mark.parametrize(
    ("every", "keep", "expected"),
    [(2, 100, [2, 4, 6, 8, 10]), (2, 2, [8, 10]), (3, 2, [6, 9]), (1, 1, [10]), (0, 2, []), (20, 1, [])],
)
def test_every_and_keep(tmp_path: Path, every: int, keep: int, expected: list[int]):
    assert run(tmp_path, 10, every=every, keep=keep) == expected


def test_the_last_iteration_is_saved_too(tmp_path: Path):
    assert run(tmp_path, 7, stop_at=7, every=3, keep=3) == [3, 6, 7]


def test_no_checkpoints_at_all_with_0(tmp_path: Path):
    assert run(tmp_path, 4, stop_at=4, every=0) == []
    assert list(tmp_path.iterdir()) == []


def test_nothing_else_stays_behind_and_the_pointer_names_the_newest(tmp_path: Path):
    run(tmp_path, 6, every=2, keep=2)
    names = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert names == {"iteration-4", "iteration-6", "latest"}
    assert (tmp_path / "checkpoints" / "latest").read_text() == "iteration-6"


def test_an_iteration_that_was_saved_before_is_replaced(tmp_path: Path):
    leftover = tmp_path / "checkpoints" / "iteration-2.tmp"
    leftover.mkdir(parents=True)
    (leftover / "half").touch()
    assert run(tmp_path, 2, every=2) == run(tmp_path, 2, every=2) == [2]
    folder = tmp_path / "checkpoints" / "iteration-2"
    assert [path.name for path in folder.iterdir()] == ["state.ckpt"]


@pytest.mark.parametrize("settings", [{"every": -1}, {"keep": 0}])
def test_settings_are_checked(tmp_path: Path, settings: dict[str, int]):
    with pytest.raises(SettingError, match=r"callbacks\.checkpoint\.every=-?\d+ .* keep=\d"):
        IterationCheckpoint(tmp_path, **settings)
