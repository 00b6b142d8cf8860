"""The checks of a strategy's step against what its class declares, and what engines and trainer can use."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.base import Exploration
from ngrpo.types.records import Step
from ngrpo.types.support import NO_ID

_FLAGS = {"scores": "scored", "vector": "dense", "noise": "noisy", "state": "stateful"}
"""The flag that declares each optional field of `Step`."""


@dataclass(frozen=True)
class Expected:
    """What the fields of a step must be.

    Attributes:
        shape: of the tensor.
        dtype: of the tensor.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype


def check_step(strategy: Exploration, step: Step, logits: Tensor, embedding: Tensor) -> None:
    """Refuses a step that contradicts its class, or that cannot be recorded and fed.

    Args:
        strategy: whose class declares the flags.
        step: what its `step` returned.
        logits: what it was given; float32 [R, V].
        embedding: the served table [V, d].

    Raises:
        SettingError: says what was returned and what to change.
    """
    if not isinstance(step, Step):
        raise refusal(strategy, f"step returns a {type(step).__name__}; return a Step")
    for name, value in zip(step._fields, step, strict=True):
        _check_declared(strategy, name, value)
    _check_support_declared(strategy, step)
    rows = logits.shape[0]
    for name, expected in _expected(strategy, rows, embedding).items():
        _check_tensor(strategy, f"step returns {name}", getattr(step, name), expected, logits.device)
    _check_values(strategy, step, logits.shape[-1])


def check_result(strategy: Exploration, method: str, value: object, expected: Expected, used: Tensor) -> None:
    """Refuses what `inputs` or `log_prob` returned; the rows ``used`` (bool [R]) of it must be finite."""
    tensor = _check_tensor(strategy, f"{method} returns numbers", value, expected, used.device)
    if not bool(tensor[used].isfinite().all()):
        raise refusal(strategy, f"{method} returns numbers that are not finite; guard its logarithms and divisions")


def refusal(strategy: Exploration, fault: str) -> SettingError:
    """Returns the error that says what is wrong with a strategy."""
    return SettingError(f"exploration={type(strategy).__name__} cannot be run: {fault}.")


def _check_declared(strategy: Exploration, name: str, value: object) -> None:
    flag = _FLAGS.get(name)
    if flag is None:
        return
    declared = getattr(strategy, flag)
    if declared and value is None:
        raise refusal(strategy, f"{flag}=True is declared and step returns no {name}; return it, or declare False")
    if not declared and value is not None:
        raise refusal(
            strategy, f"step returns {name} and {flag}=True is not declared; declare it in the class, or return none"
        )


def _check_support_declared(strategy: Exploration, step: Step) -> None:
    if strategy.support and step.support is None:
        raise refusal(
            strategy, f"support={strategy.support} is declared and step returns none; return it, or declare 0"
        )
    if step.support is not None and not strategy.support:
        raise refusal(strategy, "step returns a support and the class declares none; declare its width as support")


def _expected(strategy: Exploration, rows: int, embedding: Tensor) -> dict[str, Expected]:
    by_id = (rows, strategy.width)
    fields = {
        "token": Expected((rows,), torch.int64),
        "mixed": Expected((rows,), torch.bool),
        "ids": Expected(by_id, torch.int64),
        "weights": Expected(by_id, torch.float32),
    }
    optional = {
        "scores": Expected(by_id, torch.float32),
        "vector": Expected((rows, embedding.shape[-1]), embedding.dtype),
        "noise": Expected((rows,), torch.float32),
        "state": Expected((rows,), torch.int32),
    }
    support = {"support": Expected((rows, strategy.support), torch.int64)} if strategy.support else {}
    return fields | support | {name: optional[name] for name, flag in _FLAGS.items() if getattr(strategy, flag)}


def _check_tensor(strategy: Exploration, what: str, value: object, expected: Expected, device: torch.device) -> Tensor:
    if not isinstance(value, Tensor):
        raise refusal(strategy, f"{what} of type {type(value).__name__}; return a tensor")
    if tuple(value.shape) != expected.shape:
        hint = "; width says how many ids a mixture has, support how many a set" if len(expected.shape) == 2 else ""
        raise refusal(strategy, f"{what} of shape {list(value.shape)} instead of {list(expected.shape)}{hint}")
    if value.dtype != expected.dtype:
        raise refusal(strategy, f"{what} of dtype {_name(value.dtype)} instead of {_name(expected.dtype)}; convert it")
    if value.device != device:
        raise refusal(strategy, f"{what} on {value.device} and its logits are on {device}; make it there")
    return value


def _check_values(strategy: Exploration, step: Step, vocabulary: int) -> None:
    for fault, rows in _faults(step, vocabulary):
        if bool(rows.any()):
            raise refusal(strategy, f"step returns {fault}")
    if not strategy.mixes and bool(step.mixed.any()):
        raise refusal(strategy, "step marks rows as mixed and returns nothing to feed there; set width, or dense=True")


def _faults(step: Step, vocabulary: int) -> Iterator[tuple[str, Tensor]]:
    """Yields what can be wrong with values and where it is; what rows that are not mixed record is thrown away."""

    def mixed(channel: Tensor) -> Tensor:
        return channel[step.mixed]

    yield f"tokens outside the {vocabulary} of the vocabulary", _outside(step.token, vocabulary)
    yield f"ids outside the {vocabulary} of the vocabulary", _outside(mixed(step.ids), vocabulary)
    yield "weights that are not finite", ~mixed(step.weights).isfinite()
    if step.scores is not None:
        yield "scores that are NaN", mixed(step.scores).isnan()
    if step.vector is not None:
        yield "vectors that are not finite", ~mixed(step.vector).isfinite()
    if step.noise is not None:
        yield (
            "noise that is not a finite standard deviation of 0 or more",
            ~(mixed(step.noise) >= 0) | mixed(step.noise).isinf(),
        )
    if step.support is not None:
        ids = step.support.sort(-1).values
        filled = step.support != NO_ID
        outside = _outside(ids, vocabulary) & (ids != NO_ID)
        yield f"supports with ids outside the {vocabulary} of the vocabulary", outside
        yield "supports that have an id twice", (ids.diff(dim=-1) == 0) & (ids[:, 1:] != NO_ID)
        yield (
            "supports without the token that was drawn from them",
            filled.any(-1) & ~(step.support == step.token[:, None]).any(-1),
        )


def _outside(ids: Tensor, vocabulary: int) -> Tensor:
    return (ids < 0) | (ids >= vocabulary)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
