"""One process at a time writes to a run's folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

from ngrpo.errors import SettingError
from ngrpo.utils.lock import check_own_folders, lock

HOLD = """
import pathlib, sys
from ngrpo.utils.lock import lock
file = lock(pathlib.Path(sys.argv[1]))
print("held", flush=True)
input()
"""


def test_a_second_process_is_refused_until_the_first_is_gone_however_it_ends(tmp_path: Path) -> None:
    run = tmp_path / "run"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(SettingError) as caught:
            lock(run)
        assert str(caught.value) == (
            f"hydra.run.dir={run} is being written by another process; wait for it, or choose another folder."
        )
        other.kill()
    lock(run).close()


@pytest.mark.parametrize("name", ["checkpoints", "record", "model", "bad_steps"])
def test_a_link_in_place_of_a_runs_own_folder_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "run").mkdir()
    check_own_folders(tmp_path / "run")
    (tmp_path / "run" / name).symlink_to("../other")
    with pytest.raises(SettingError) as caught:
        check_own_folders(tmp_path / "run")
    assert str(caught.value) == (
        f"hydra.run.dir={tmp_path}/run holds a link, {tmp_path}/run/{name} to ../other, and a run removes nothing "
        "through a link; take it away, or let hydra.run.dir itself lie where there is room."
    )


def test_a_runs_folder_may_itself_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run").symlink_to(tmp_path / "disk", target_is_directory=True)
    check_own_folders(tmp_path / "run")
