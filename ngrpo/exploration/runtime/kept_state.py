"""The guard against state that a strategy keeps on its object or its class."""

from collections.abc import Callable

import torch
from torch import Tensor

from ngrpo.exploration.base import Exploration

_PLAIN = (bool, int, float, str, bytes, type(None))


def attributes(strategy: Exploration) -> Callable[[], list[str]]:
    """Returns a function that names the attributes of a strategy that have changed since, or are new."""
    before = _seen(strategy)

    def changed() -> list[str]:
        after = _seen(strategy)
        return [name for name in after if name not in before or after[name] != before[name]]

    return changed


def _seen(strategy: Exploration) -> dict[str, object]:
    """Returns what can be compared of each attribute: the contents of plain values, containers and generators."""
    own = [cls for cls in type(strategy).__mro__ if issubclass(cls, Exploration) and cls is not Exploration]
    values = {name: value for cls in reversed(own) for name, value in vars(cls).items() if _holds_data(name, value)}
    return {name: _contents(value) for name, value in {**values, **vars(strategy)}.items()}


def _holds_data(name: str, value: object) -> bool:
    return not name.startswith("__") and isinstance(value, (*_PLAIN, list, dict, set, Tensor, torch.Generator))


def _contents(value: object) -> object:
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, Exploration):
        return _seen(value)
    if isinstance(value, dict):
        return [(repr(key), _contents(one)) for key, one in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_contents(one) for one in value]
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, Tensor) and not value.is_inference():
        return id(value), value._version
    return id(value)
