"""From a composed configuration to checked settings, and from `_target_` nodes to objects."""

import inspect
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, get_type_hints

from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ngrpo.config import environment
from ngrpo.config.allowlist import below, check_allowed
from ngrpo.config.hydra_errors import composition_sentence
from ngrpo.config.ranges import check_sizes
from ngrpo.config.renamed_targets import rename
from ngrpo.config.schema import Config
from ngrpo.config.type_check import fits, name
from ngrpo.errors import SettingError

log = logging.getLogger(__name__)

_HYDRA_KEYS = {"_target_", "_partial_", "_args_", "_recursive_", "_convert_"}


def checked(config: DictConfig, schema: type = Config) -> DictConfig:
    """Returns the resolved configuration, refusing every key that nothing reads.

    Hydra lets ``+group.key=1`` through; merging into the schema again catches it, and the keys of `_target_`
    nodes are compared with the signature of their target.

    Raises:
        SettingError: a key is unknown, a value is missing, or a target is not allowed.
    """
    try:
        environment.remember(config)
        resolved = OmegaConf.to_container(config, resolve=True)
        _check_no_interpolation(resolved, "")
        merged = OmegaConf.merge(OmegaConf.structured(schema), resolved)
        OmegaConf.to_container(merged, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise SettingError(composition_sentence(error)) from error
    assert isinstance(merged, DictConfig)
    for sentence in rename(merged):
        log.warning(sentence)
    _check_nodes(merged)
    check_allowed(merged, merged.allow_targets)
    _check_targets(merged, "")
    _check_homes(merged)
    check_sizes(merged)
    return merged


def _check_no_interpolation(node: Any, path: str) -> None:
    """A text that still is one would be resolved again after everything has been checked."""
    if isinstance(node, dict | list):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            _check_no_interpolation(child, f"{path}.{key}".lstrip("."))
    elif isinstance(node, str) and "${" in node:
        raise SettingError(f"{path}={node} is an interpolation that leads to another one; write what it should be.")


_NODES = {
    "train": (
        "model", "data", "reward", "algo", "selection", "exploration", "logger", "rollout.engine", "trainer.optimizer",
        "trainer.schedule",
    ),
    "evaluate": ("model", "reward", "evaluator", "rollout.engine"),
}  # fmt: skip
"""Settings that name what they build, by script."""


def _check_nodes(config: DictConfig) -> None:
    """What builds something must say what: every group, and everything that is listed by name."""
    places = list(_NODES["evaluate" if "evaluator" in config else "train"])
    places += ["critic"] if config.get("critic") is not None else []
    places += [f"callbacks.{key}" for key, node in config.get("callbacks", {}).items() if node is not None]
    places += [f"reward_terms.{key}.term" for key in config.get("reward_terms", {})]
    for place in places:
        node = OmegaConf.select(config, place)
        if not _is_target(node):
            raise SettingError(f"{place}={node} builds nothing; choose a file of conf/{place.partition('.')[0]}.")


_HOMES = {
    "algo": ("ngrpo.algo.policy_loss",),
    "algo.advantage": ("ngrpo.algo.advantage",),
    "algo.ratio": ("ngrpo.algo.ratio",),
    "algo.clip": ("ngrpo.algo.clip",),
    "algo.aggregate": ("ngrpo.algo.aggregate",),
    "algo.kl": ("ngrpo.algo.kl",),
    "algo.credit": ("ngrpo.algo.credit", "ngrpo.algo.consistency"),
    "algo.correction": ("ngrpo.algo.correction",),
    "exploration": ("ngrpo.exploration",),
    "evaluator.exploration": ("ngrpo.exploration",),
    "trainer.schedule": ("ngrpo.training.optim.lr_schedule",),
}
"""Where the parts are that fit a setting: two functions of the same types may mean different things."""


def _check_homes(config: DictConfig) -> None:
    """A part of this program must be one of its setting's; a user's own is the user's affair."""
    for place, homes in _HOMES.items():
        target = OmegaConf.select(config, f"{place}._target_")
        if isinstance(target, str) and below(target, ("ngrpo",)) and not below(target, homes):
            raise SettingError(
                f"{place}._target_={target} is made for another setting; choose a part of {' or '.join(homes)}."
            )


def _is_target(node: Any) -> bool:
    return isinstance(node, DictConfig) and isinstance(node.get("_target_"), str)


_COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def build(node: DictConfig, **available: Any) -> Any:
    """Instantiates a `_target_` node; the only caller of Hydra's ``instantiate``.

    Args:
        node: the node.
        available: objects by name, such as `ngrpo.entrypoints.run_parts.RunParts.by_name`; those that the target's
            signature names and the node leaves open are passed to it.

    Raises:
        SettingError: of the target's own making, or because it cannot be imported or lacks a setting.
    """
    parameters = _parameters(node, _target(node))
    named = {name for name, parameter in parameters.items() if parameter.kind not in _COLLECTING}
    passed = {name: value for name, value in available.items() if name in named and name not in node}
    if not node.get("_partial_"):
        _check_complete(node, [p for p in parameters.values() if p.name not in passed], sorted(available))
    # Passed to the partial, not to Hydra, which would turn dataclass objects into dictionaries.
    try:
        made = instantiate(node, _partial_=True, _convert_="all")
    except InstantiationException as error:
        if isinstance(error.__cause__, SettingError):
            raise error.__cause__ from None
        raise
    return partial(made, **passed) if node.get("_partial_") else made(**passed)


def _check_complete(node: DictConfig, parameters: list[inspect.Parameter], available: list[str]) -> None:
    required = [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in _COLLECTING]
    missing = [name for name in required if name not in node]
    if not missing:
        return
    asked = f"; what it may ask for without a setting is {', '.join(available)}" if available else ""
    raise SettingError(
        f"_target_={node['_target_']} also needs {', '.join(missing)}; choose a preset that sets them, or add them"
        f"{asked}."
    )


def _target(node: DictConfig) -> Callable[..., Any]:
    try:
        return get_object(node["_target_"])
    except Exception as error:
        reason = " ".join(str(error).split())
        raise SettingError(
            f"_target_={node['_target_']} cannot be imported ({reason}); give the dotted path of a class or function."
        ) from error


def _parameters(node: DictConfig, target: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(target).parameters
    except (TypeError, ValueError) as error:
        raise SettingError(
            f"_target_={node['_target_']} has no parameters that Python knows; give the dotted path of a class or "
            "function that is written in Python."
        ) from error


def _check_targets(node: Any, path: str) -> None:
    if isinstance(node, ListConfig):
        for index, child in enumerate(node):
            _check_targets(child, f"{path}.{index}")
    if not isinstance(node, DictConfig):
        return
    if "_target_" in node:
        _check_signature(node, path)
    for key, child in node.items():
        _check_targets(child, f"{path}.{key!s}".lstrip("."))


def _check_signature(node: DictConfig, path: str) -> None:
    target = _target(node)
    parameters = _parameters(node, target)
    hints = get_type_hints(target.__init__ if inspect.isclass(target) else target)
    free = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    for key in map(str, node.keys() - _HYDRA_KEYS):
        if key not in parameters and not free:
            known = ", ".join(parameters)
            raise SettingError(f"{path}.{key}={node[key]} is not a setting of {node['_target_']}; it has {known}.")
        if not fits(node[key], hints.get(key, Any)):
            raise SettingError(
                f"{path}.{key}={node[key]} is of type {type(node[key]).__name__}, and {node['_target_']} "
                f"takes {name(hints[key])}; change the value."
            )
