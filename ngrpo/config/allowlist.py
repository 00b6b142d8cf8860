"""The allowlist of code that a configuration may name: naming it means running it.

A permission is given on the command line only (`ngrpo.config.permissions`), never by a file that is read.
"""

import importlib.util
import inspect
import logging
import types
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from hydra.utils import get_object
from omegaconf import DictConfig, ListConfig

from ngrpo.errors import SettingError

ALLOWED = ("ngrpo", "torch.optim", "lightning.pytorch.loggers", "lightning.pytorch.callbacks")
"""Packages of which every configuration may name parts; ``allow_targets`` adds to them."""

PARTS = (
    "ngrpo.algo", "ngrpo.callbacks", "ngrpo.data", "ngrpo.evaluation.benchmark", "ngrpo.evaluation.evaluator",
    "ngrpo.exploration", "ngrpo.loggers.csv", "ngrpo.loggers.mlflow", "ngrpo.loggers.tensorboard",
    "ngrpo.loggers.trackio", "ngrpo.loggers.wandb", "ngrpo.modeling.loading",
    "ngrpo.modeling.lora", "ngrpo.rewards",
    "ngrpo.rollout.auto", "ngrpo.rollout.dynamic_sampling", "ngrpo.rollout.remote_engine", "ngrpo.rollout.scheduling",
    "ngrpo.rollout.torch_engine.engine", "ngrpo.rollout.vllm.engine", "ngrpo.training.critic_update",
    "ngrpo.training.optim.lr_schedule", "ngrpo.training.optim.optimizers",
)  # fmt: skip
"""Where in ngrpo the parts are; elsewhere are functions that write, delete and start processes."""

logging.getLogger("hydra.utils").setLevel(logging.CRITICAL)  # it logs what is said here in a sentence

_MACHINERY = ("ngrpo.rewards.isolation",)
_OWN = Path(__file__).resolve().parents[2]


def check_allowed(config: Any, further: Sequence[str], path: str = "") -> None:
    """Refuses targets that are no parts of the allowed packages, such as what an allowed module merely imports.

    A package is known by the place of its files, not by its name alone.

    Args:
        config: a configuration or a part of it.
        further: modules, or targets, that the user allows beside `ALLOWED`.
        path: of that part.

    Raises:
        SettingError: a target is refused; unless its package is allowed, it was not imported.
    """
    for key, target in _targets(config, path):
        if target in further:
            continue
        if below(target, further):
            _check_further(key, target, further)
        elif not below(target, ALLOWED):
            raise _outside(key, target)
        else:
            _check_own(key, target)


def below(name: str, packages: Sequence[str]) -> bool:
    """Says whether a dotted name is one of some others, or lies below one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _targets(node: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, DictConfig):
        target = node.get("_target_")
        if target is not None:
            key = f"{path}._target_".lstrip(".")
            if not isinstance(target, str):
                raise SettingError(f"{key}={target} is no text; give the dotted path of a class or function.")
            yield key, target
        for name, child in node.items():
            yield from _targets(child, f"{path}.{name!s}".lstrip("."))
    elif isinstance(node, ListConfig):
        for index, child in enumerate(node):
            yield from _targets(child, f"{path}.{index}")


def _check_own(key: str, target: str) -> None:
    """One of `ALLOWED`: a class, or in ngrpo also a function, that is defined in the very package."""
    package = target.partition(".")[0]
    if (other := _shadowing(package)) is not None:
        raise SettingError(
            f"{key}={target} names the package {package}, and Python finds another one of that name, {other}; rename "
            "that, or take its folder off PYTHONPATH."
        )
    found = _found(target)
    if found is None:  # will be said when it is built
        return
    home, (allowed,) = _home(found), [one for one in ALLOWED if below(target, [one])]
    if home is None or not below(home, [allowed]) or "_" in (part[:1] for part in target.split(".")):
        raise _outside(key, target)
    is_part = inspect.isclass(found) or (
        allowed == "ngrpo" and inspect.isfunction(found) and not below(home, ["ngrpo.callbacks"])
    )
    is_part = is_part and "." not in found.__qualname__
    if allowed == "ngrpo":
        is_part = is_part and below(home, PARTS) and not below(home, _MACHINERY)
    if not is_part:
        raise SettingError(
            f"{key}={target} is nothing that a configuration may build; choose a class, or a function, of those that "
            f"the files of conf/ name, or allow it with allow_targets=[{target}]."
        )


def _check_further(key: str, target: str, further: Sequence[str]) -> None:
    """Below a module that the user allows: defined there, or in its ``__all__``; not what it merely imports."""
    if below(target, [one for one in further if below(one, ALLOWED)]):
        return
    found = _found(target)
    if found is None:
        return
    home = _home(found)
    if home is not None and below(home, [*further, *ALLOWED]):
        return
    path, _, name = target.rpartition(".")
    owner = _found(path)
    if not below(getattr(owner, "__name__", ""), further) or name not in getattr(owner, "__all__", ()):
        raise SettingError(
            f"{key}={target} is not defined in the modules of allow_targets=[{','.join(further)}]; if you trust it, add"
            f" {target} to them."
        )


def _outside(key: str, target: str) -> SettingError:
    return SettingError(
        f"{key}={target} is outside the packages that a configuration may name ({', '.join(ALLOWED)}); if you "
        f"trust it, set allow_targets=[{target.rpartition('.')[0] or target}]."
    )


def _found(target: str) -> Any:
    """Imports a target; None if that is not possible."""
    try:
        return get_object(target)
    except Exception:
        return None


def _home(found: Any) -> str | None:
    """Returns the module that defines a class or function, also one that is bound or partially applied."""
    while isinstance(found, partial | types.MethodType):
        found = found.func if isinstance(found, partial) else found.__func__
    if inspect.ismodule(found):
        return found.__name__
    home = getattr(found, "__module__", None)
    return home if isinstance(home, str) else None


def _shadowing(package: str) -> str | None:
    """Returns where Python finds a package of that name that is not the one that is meant; None if it is that."""
    try:
        spec = importlib.util.find_spec(package)  # of a top-level name: imports nothing
    except ValueError:
        spec = None
    if spec is None:
        return None
    places = [spec.origin] if spec.origin is not None else list(spec.submodule_search_locations or [])
    meant = _folder(package)
    strange = [place for place in places if meant not in Path(place).resolve().parents]
    return strange[0] if strange else None


def _folder(package: str) -> Path:
    """Returns the folder of a package: this program's own, or that of the installed distribution."""
    if package == "ngrpo":
        return _OWN / package
    try:
        return Path(str(distribution(package).locate_file(package))).resolve()
    except PackageNotFoundError:
        return _OWN / package
