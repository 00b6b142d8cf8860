"""The checked configuration: resolved, typed, and without a key that nothing reads."""

import inspect
import logging
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ngrpo.config import environment
from ngrpo.config.allowlist import check_allowed
from ngrpo.config.earlier_loggers import name_loggers
from ngrpo.config.hydra_errors import composition_sentence
from ngrpo.config.instantiate import parameters_of, target_of
from ngrpo.config.own_engines import settle_own_engine
from ngrpo.config.ranges import check_sizes
from ngrpo.config.renamed_targets import rename
from ngrpo.config.schema import Config
from ngrpo.config.target_settings import check_targets_fit, check_targets_set
from ngrpo.config.type_check import fits, hints_of, name
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
    check_allowed(merged, merged.allow_targets)
    if "logger" in merged:
        name_loggers(merged)
    check_targets_set(merged)
    if "rollout" in merged:
        settle_own_engine(merged)
    _check_signatures(merged, "")
    check_targets_fit(merged)
    check_sizes(merged)
    return merged


def _check_no_interpolation(node: Any, path: str) -> None:
    """A text that still is one would be resolved again after everything has been checked."""
    if isinstance(node, dict | list):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            _check_no_interpolation(child, f"{path}.{key}".lstrip("."))
    elif isinstance(node, str) and "${" in node:
        raise SettingError(f"{path}={node} is an interpolation that leads to another one; write what it should be.")


def _check_signatures(node: Any, path: str) -> None:
    if isinstance(node, ListConfig):
        for index, child in enumerate(node):
            _check_signatures(child, f"{path}.{index}")
    if not isinstance(node, DictConfig):
        return
    if "_target_" in node:
        _check_signature(node, path)
    for key, child in node.items():
        _check_signatures(child, f"{path}.{key!s}".lstrip("."))


def _check_signature(node: DictConfig, path: str) -> None:
    target = target_of(node)
    parameters = parameters_of(node, target)
    hints = hints_of(target)
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
