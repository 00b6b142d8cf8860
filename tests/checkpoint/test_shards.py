"""A sharded checkpoint runs no code, wherever in it the code is."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

from ngrpo.checkpoint.folders import FOLDER, STATE, open_checkpoint, publish
from ngrpo.checkpoint.shards import Unsafe, check_shards
from ngrpo.errors import SettingError


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def saved(folder: Path, **more: Any) -> Path:
    state = {
        "weight": torch.ones(3),
        "half": torch.ones(2, dtype=torch.bfloat16),
        "group": {"lr": 0.1, "betas": (0.9,)},
    }
    dcp.save({**state, **more}, checkpoint_id=folder, no_dist=True)
    return folder


def test_an_honest_one_passes(tmp_path: Path) -> None:
    check_shards(saved(tmp_path / "state"))
    check_shards(tmp_path)  # holds no shards


def test_code_in_the_metadata_is_not_run(tmp_path: Path) -> None:
    folder = saved(tmp_path / "state")
    (folder / ".metadata").write_bytes(pickle.dumps(Payload(tmp_path / "made")))
    with pytest.raises(Unsafe, match=r"posix\.mkdir"):
        check_shards(folder)
    assert not (tmp_path / "made").exists()


def test_code_in_an_entry_is_not_run(tmp_path: Path) -> None:
    folder = saved(tmp_path / "state", evil=Payload(tmp_path / "made"))
    with pytest.raises(Unsafe, match="mkdir"):
        check_shards(folder)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("name", ["os", "dataclass", "Sequence"])
def test_what_an_allowed_module_imports_is_not_allowed(tmp_path: Path, name: str) -> None:
    folder = saved(tmp_path / "state")
    (folder / ".metadata").write_bytes(f"ctorch.distributed.checkpoint.metadata\n{name}\n.".encode())
    with pytest.raises(Unsafe):
        check_shards(folder)


def test_files_elsewhere_are_not_read(tmp_path: Path) -> None:
    folder = saved(tmp_path / "state")
    path = folder / ".metadata"
    metadata = pickle.loads(path.read_bytes())
    next(iter(metadata.storage_data.values())).relative_path = "../secret"
    path.write_bytes(pickle.dumps(metadata))
    with pytest.raises(Unsafe, match="a file outside of it, ../secret"):
        check_shards(folder)


def test_a_run_refuses_such_a_checkpoint_though_its_checksums_agree(tmp_path: Path) -> None:
    final = tmp_path / FOLDER / "iteration-1"
    saved(tmp_path / FOLDER / "iteration-1.tmp" / STATE, evil=Payload(tmp_path / "made"))
    publish(final.with_name("iteration-1.tmp"), final, {})
    with pytest.raises(SettingError) as caught:
        open_checkpoint(final)
    assert str(caught.value).startswith(f"ckpt={final} would run code when it is loaded (")
    assert str(caught.value).endswith("); do not use it.")
    assert not (tmp_path / "made").exists()
