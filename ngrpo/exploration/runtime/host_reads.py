"""The guard against code that reads values of tensors back to the host."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ngrpo.errors import SettingError

_READS = (
    *("item", "tolist", "numpy", "cpu", "nonzero", "argwhere", "unique", "unique_consecutive", "masked_select"),
    *("equal", "allclose", "is_nonzero", "bincount", "__bool__", "__int__", "__float__", "__complex__", "__index__"),
    *("__contains__", "__array__", "__format__", "__repr__"),
)


class NoHostReads(TorchFunctionMode):
    """While in force, refuses functions whose result depends on values: each waits for the device in every step.

    Indexing with a mask, or with a tensor of no dimension, is among them. What cannot be seen here are reads inside of
    compiled extensions.

    Args:
        who: the subject of the message.
    """

    def __init__(self, who: str) -> None:
        super().__init__()
        self.who = who

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Calls ``func``.

        Raises:
            SettingError: it reads values back.
        """
        if what := _read(getattr(func, "__name__", ""), args, kwargs or {}):
            raise SettingError(
                f"{self.who} reads values back to the host ({what}), which makes every step wait for the device; write"
                " it as tensor operations of fixed shapes, torch.where for a condition."
            )
        return func(*args, **(kwargs or {}))


def _read(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> str:
    """Names what a function reads back; "" for nothing."""
    if name in ("__getitem__", "__setitem__"):
        return _read_by_index(args[1], filled=name == "__setitem__" and not _is_array(args[2]))
    repeats = args[1] if len(args) > 1 else named.get("repeats")
    unsized = name == "repeat_interleave" and isinstance(repeats, torch.Tensor) and named.get("output_size") is None
    if name in _READS or unsized:
        return f"Tensor.{name}"
    return "torch.where of a condition alone" if name == "where" and len(args) + len(named) == 1 else ""


def _read_by_index(index: Any, filled: bool) -> str:
    """Names what indexing reads; where one number is written, a mask is not read."""
    parts = [one for one in (index if isinstance(index, tuple) else (index,)) if isinstance(one, torch.Tensor)]
    if any(part.dtype in (torch.bool, torch.uint8) for part in parts) and not filled:
        return "indexing with a mask"
    return "indexing with a tensor of no dimension; index_select takes it" if any(not p.dim() for p in parts) else ""


def _is_array(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0
