"""The code of one's own that a run's settings name, by its files' contents.

A resumed run may have other code, as it may after an update of this package; it is told so.
"""

import hashlib
import inspect
import logging
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hydra.utils import get_object

from ngrpo.config.allowlist import ALLOWED, below

log = logging.getLogger(__name__)

_TARGET = "_target_"
_PREFIX = "code of "
_PACKAGE = Path(__file__).parents[1]
_INSTALLED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]


def own_code(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the digests of classes and functions that settings name and that no installed package has.

    Args:
        settings: by their whole names; what they name was permitted, and imported for that.

    Returns:
        By ``code of my_module.MyStrategy``.
    """
    named = {value for name, value in settings.items() if name.rpartition(".")[2] == _TARGET}
    targets = {target for target in named if not below(target, ALLOWED)}
    digests = {target: _digest(get_object(target)) for target in sorted(targets)}
    return {f"{_PREFIX}{target}": digest for target, digest in digests.items() if digest}


def without_own_code(identity: Mapping[str, str]) -> dict[str, str]:
    """Returns what a resumed run must have in common with its checkpoint."""
    return {name: value for name, value in identity.items() if not name.startswith(_PREFIX)}


def warn_of_changed_code(checkpoint: Path, saved: Mapping[str, str], present: Mapping[str, str]) -> None:
    """Names the code that is not what it was when the checkpoint was made; checkpoints of before know of none."""
    names = [name for name in present if name.startswith(_PREFIX)]
    changed = [name.removeprefix(_PREFIX) for name in names if saved.get(name, present[name]) != present[name]]
    if changed:
        log.warning(
            "the code of %s has changed since ckpt=%s was saved; the run goes on with it as it is now",
            ", ".join(changed),
            checkpoint,
        )


def _digest(target: Any) -> str:
    contents = [file.read_bytes() for file in sorted(set(_files(target))) if file.is_file()]
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:16] if contents else ""


def _files(target: Any) -> Iterator[Path]:
    """Yields where a function, or a class and its bases, are written, if by the user."""
    for one in inspect.getmro(target) if inspect.isclass(target) else (inspect.unwrap(target),):
        try:
            file = Path(inspect.getsourcefile(one) or "").resolve()
        except TypeError:  # built in
            continue
        if not any(file.is_relative_to(folder) for folder in (_PACKAGE, *_INSTALLED)):
            yield file
