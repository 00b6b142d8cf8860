"""The removal of the folder of a refused command, in which nothing but its log or lock has been written."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from lightning.pytorch.utilities import rank_zero_only
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ngrpo.errors import RunError, SettingError
from ngrpo.utils.atomic_write import remove
from ngrpo.utils.lock import FolderInUse

_FILES = {"train.log", "evaluate.log", ".lock"}


@contextmanager
def removing_unused(run_dir: Path) -> Iterator[None]:
    """Removes the folder when a setting is refused before anything has begun, and the parents that are empty then.

    A folder that was named by ``hydra.run.dir``, or ``out`` of an evaluation, stays, and so do those of a sweep.
    """
    try:
        yield
    except FolderInUse:
        raise
    except (SettingError, OmegaConfBaseException):
        if rank_zero_only.rank == 0 and not _named():
            _remove(run_dir, _FILES)
        raise


@contextmanager
def removing_new(folder: Path, files: Collection[str]) -> Iterator[None]:
    """Removes the folder, if it was not there before, when a command is refused with nothing in it but these files.

    The parents that are empty then go with it.
    """
    known = folder.exists()
    try:
        yield
    except FolderInUse:
        raise
    except (SettingError, RunError):
        if folder.is_dir() and not known:
            _remove(folder, files)
        raise


@contextmanager
def removing_added(folder: Path) -> Iterator[None]:
    """Removes what has come into the folder when a setting is refused."""
    known = set(folder.iterdir()) if folder.is_dir() else set()
    try:
        yield
    except SettingError:
        for path in set(folder.iterdir()) - known if folder.is_dir() else ():
            remove(path)
        raise


def _named() -> bool:
    hydra = HydraConfig.get()
    # As typed: the interpolation that was refused may stand in it.
    overrides = cast(dict[str, list[str]], OmegaConf.to_container(hydra.overrides, resolve=False))
    typed = [*overrides["hydra"], *overrides["task"]]
    return hydra.mode != RunMode.RUN or any(text.startswith(("hydra.run.dir=", "out=")) for text in typed)


def _remove(run_dir: Path, files: Collection[str]) -> None:
    if not {path.name for path in run_dir.iterdir()} <= set(files):
        return
    for name in files:
        (run_dir / name).unlink(missing_ok=True)
    here = Path.cwd()
    with suppress(OSError):  # the first that is not empty stays
        for folder in (run_dir, *run_dir.absolute().parents):
            if here in folder.absolute().parents:
                folder.rmdir()
