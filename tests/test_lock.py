"""One process at a time writes to a run's folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ngrpo.errors import SettingError
from ngrpo.lock import lock

ROOT = Path(__file__).parents[1]
HOLD = """
import pathlib, sys
from ngrpo.lock import lock
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
