"""Marks on the functions of an algorithm: what one of them needs beside its usual arguments, and what it excludes."""

from collections.abc import Callable
from functools import partial
from typing import Any


def inner(function: Any) -> Any:
    """Returns the function inside of a partial, or else the function itself."""
    return function.func if isinstance(function, partial) else function


def keywords(function: Any) -> dict[str, Any]:
    """Returns the settings that a partial holds, none of another function."""
    return function.keywords if isinstance(function, partial) else {}


def is_marked(function: Any, mark: Callable[..., Any]) -> bool:
    """Says whether a function, or the one inside of a partial, was decorated with a mark such as `signed`."""
    return bool(getattr(inner(function), mark.__name__, False))


def one_advantage(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a ratio of whole sequences: a credit by token is refused at start-up."""
    return _mark(function, "one_advantage")


def of_sequence(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a ratio whose value is that of the whole sequence: a clip that `reads_log_prob` is refused at start-up."""
    return _mark(function, "of_sequence")


def signed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a ratio that gets the advantages [A, N] as a further argument, and returns as many log ratios [A, N]."""
    return _mark(function, "signed")


def reads_share(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a ratio with a parameter ``share``, which gets `ngrpo.algo.loss_terms.LossInputs.share`."""
    return _mark(function, "reads_share")


def reads_log_prob(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a clip that gets the log-probs [N] under the current policy, a constant, as a further argument."""
    return _mark(function, "reads_log_prob")


def keeps_k(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a selection with a parameter ``k``, the responses that it keeps: groups of as many are refused."""
    return _mark(function, "keeps_k")


def _mark(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    setattr(function, name, True)
    return function
