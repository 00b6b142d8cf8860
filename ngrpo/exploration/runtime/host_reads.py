"""The guard against code that reads values of tensors back to the host."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ngrpo.errors import SettingError

_READS = (
    *("item", "tolist", "numpy", "cpu", "nonzero", "argwhere", "unique", "masked_select", "equal"),
    *("__bool__", "__int__", "__float__", "__complex__", "__index__", "__contains__", "__array__"),
)


class NoHostReads(TorchFunctionMode):
    """While in force, refuses functions whose result depends on values: each waits for the device in every step.

    Indexing with a mask is one of them. What cannot be seen here are reads inside of compiled extensions.

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
        name = getattr(func, "__name__", "")
        if name in _READS or (name == "__getitem__" and _has_mask(args[1])):
            what = "indexing with a mask" if name == "__getitem__" else f"Tensor.{name}"
            raise SettingError(
                f"{self.who} reads values back to the host ({what}), which makes every step wait for the device; write"
                " it as tensor operations of fixed shapes, torch.where for a condition."
            )
        return func(*args, **(kwargs or {}))


def _has_mask(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8) for part in parts)
