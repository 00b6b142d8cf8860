"""Values from the environment, such as keys: used, and never stored or shown.

``${oc.env:NAME}`` gives the value, as everywhere in OmegaConf; here each value that was given is remembered, so that
what is stored keeps the interpolation, and messages show it in place of the value.
"""

import hashlib
import logging
import os
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.resolvers.oc import env

_SHORTEST = 6
"""Characters of a value that is replaced wherever it stands; shorter ones are found by chance in other words."""

_given: dict[str, str] = {}
_calls: list[str] = []
_settings: dict[str, tuple[str, str]] = {}


def register() -> None:
    """Takes the place of OmegaConf's resolver of the same name, which it calls; log records are `redacted` too."""
    OmegaConf.register_new_resolver("oc.env", _env, replace=True)
    logging.setLogRecordFactory(_redacted_record)


def _redacted_record(*arguments: Any, **named: Any) -> logging.LogRecord:
    record = logging.LogRecord(*arguments, **named)
    if _given:
        record.msg, record.args = redacted(record.getMessage()), None
    return record


def _env(name: str, *default: Any) -> str | None:
    _calls.append(name)
    if name in os.environ:
        _given[os.environ[name]] = f"${{oc.env:{name}}}"
    return env(name, *default)


def remember(config: DictConfig) -> None:
    """Remembers which settings of a composed configuration come from the environment, in place of those before."""
    _settings.clear()
    _walk(config, OmegaConf.to_container(config), "")


def stored(config: DictConfig) -> dict[str, Any]:
    """Returns a checked configuration as plain values, but what came from the environment as its interpolation."""
    return _with(config, {name: raw for name, (raw, _) in _settings.items()})


def fingerprinted(config: DictConfig) -> dict[str, Any]:
    """Returns the same for comparing: with a digest of 32 bits, slow to compute, so that it tells little of a value."""
    return _with(config, {name: f"{raw} ({_digest(name, value)})" for name, (raw, value) in _settings.items()})


def _with(config: DictConfig, texts: Mapping[str, str]) -> dict[str, Any]:
    made: Any = OmegaConf.to_container(config, resolve=True)
    for name, text in texts.items():
        *path, last = name.split(".")
        node = made
        for key in path:
            node = node[int(key)] if isinstance(node, list) else node.get(key, {})
        if isinstance(node, list):
            node[int(last)] = text
        elif last in node:
            node[last] = text
    return dict(made)


def redacted(text: str) -> str:
    """Returns a text with interpolations in place of the values that the environment gave."""
    for name, (raw, value) in _settings.items():
        for quote in ("", "'"):
            text = text.replace(f"{name}={quote}{value}{quote}", f"{name}={raw}")
    for value, raw in sorted(_given.items(), key=lambda item: -len(item[0])):
        if len(value) >= _SHORTEST:
            for written in {value, repr(value)[1:-1]}:
                text = text.replace(written, raw)
    return text


def _walk(node: Any, raw: Any, name: str) -> None:
    if isinstance(node, DictConfig):
        for key in node:
            if not OmegaConf.is_missing(node, key):
                _look(node, raw[key], key, f"{name}.{key!s}".lstrip("."))
    elif isinstance(node, ListConfig):
        for index in range(len(node)):
            _look(node, raw[index], index, f"{name}.{index}")


def _look(node: Any, raw: Any, key: Any, name: str) -> None:
    if not OmegaConf.is_interpolation(node, key):
        _walk(node[key], raw, name)
        return
    before, value = len(_calls), node[key]
    if OmegaConf.is_config(value):
        value = OmegaConf.to_container(value, resolve=True)
    if len(_calls) > before:
        _settings[name] = (str(raw), str(value))


def _digest(name: str, value: str) -> str:
    return hashlib.pbkdf2_hmac("sha256", value.encode("utf-8", "surrogateescape"), name.encode(), 100_000).hex()[:8]
