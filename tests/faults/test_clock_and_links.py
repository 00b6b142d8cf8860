"""A clock that is set back, and links among a run's checkpoints."""

import os
from pathlib import Path

import pytest
from faulty_run import ITERATIONS, Undisturbed, assert_equal_states, final_state, finish, logged

from ngrpo.checkpoint.folders import complete_checkpoints, open_checkpoint

pytestmark = pytest.mark.faults


def names(run: Path) -> list[str]:
    return [path.name for path in complete_checkpoints(run)]


def test_a_clock_set_back_loses_no_new_checkpoint(undisturbed: Undisturbed, tmp_path: Path) -> None:
    run = tmp_path / "run"
    clock = ("+callbacks.clock._target_=poison.ClockSetBack", "+callbacks.clock.iteration=2")
    status, said = finish(run, "trainer.iterations=5", *clock)
    assert status == 0, said
    assert names(run) == ["iteration-4", "iteration-5"]
    assert (run / "checkpoints" / "latest").read_text() == "iteration-5"
    status, said = finish(run, "ckpt=latest")
    assert status == 0, said
    assert f"resuming from {run}/checkpoints/iteration-5" in logged(run)
    assert_equal_states(undisturbed.state, final_state(run, ITERATIONS))


def test_pruning_leaves_what_links_lead_to(tmp_path: Path) -> None:
    other, run = tmp_path / "other", tmp_path / "run"
    assert finish(other, "trainer.iterations=2")[0] == 0
    (run / "checkpoints").mkdir(parents=True)
    for number, name in enumerate(("iteration-1", "iteration-7.tmp", "iteration-8.old"), start=1):
        (run / "checkpoints" / name).symlink_to(other / "checkpoints" / f"iteration-{min(number, 2)}")
    status, said = finish(run, f"ckpt={other}", "trainer.iterations=5")
    assert status == 0, said
    assert sorted(os.listdir(run / "checkpoints")) == ["iteration-4", "iteration-5", "latest"]
    for checkpoint in complete_checkpoints(other):
        open_checkpoint(checkpoint)
    assert names(other) == ["iteration-1", "iteration-2"]


def test_a_run_does_not_write_into_another_ones_checkpoints(tmp_path: Path) -> None:
    other, run = tmp_path / "other", tmp_path / "run"
    assert finish(other, "trainer.iterations=1")[0] == 0
    run.mkdir()
    (run / "checkpoints").symlink_to(other / "checkpoints")
    status, said = finish(run, "trainer.iterations=3")
    assert status == 1
    assert said.startswith(f"error: hydra.run.dir={run} holds a link, {run}/checkpoints to {other}/checkpoints, and")
    assert len(said.splitlines()) == 1
    assert names(other) == ["iteration-1"]
