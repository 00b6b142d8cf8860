"""The metrics that a table shows: Pass@1 is the mean, and stands in no table beside it."""

from collections.abc import Iterable

_PASS_AT_1 = "pass@1"
_MEAN = "mean"


def table_rows(names: Iterable[str]) -> list[str]:
    """Returns the names without each ``<prefix>pass@1`` beside which there is a ``<prefix>mean`` or ``mean@n``."""
    every = list(dict.fromkeys(names))
    means = {name.rpartition(_MEAN)[0] for name in every if _is_mean(name)}
    return [name for name in every if not (_last(name) == _PASS_AT_1 and name.removesuffix(_PASS_AT_1) in means)]


def _is_mean(name: str) -> bool:
    return _last(name).partition("@")[0] == _MEAN


def _last(name: str) -> str:
    return name.rpartition("/")[2]
