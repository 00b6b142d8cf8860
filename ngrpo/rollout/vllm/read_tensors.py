"""The tensors that other code reads: what a loader passes over leaves no trace in what it loads into."""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class ReadTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes inside which of some tensors an operation reads; to make a view of one is not to read it.

    A tensor is known by its addresses, since others may share its memory and not its storage, as through NumPy.

    Attributes:
        unread: names of the others, but for those without elements.

    Args:
        tensors: by name.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        spans = sorted((*_span(tensor), name) for name, tensor in tensors.items() if tensor.numel())
        self._starts = [start for start, _, _ in spans]
        self._ends = [end for _, end, _ in spans]
        self._furthest = list(accumulate(self._ends, max))
        self._names = [name for _, _, name in spans]
        self.unread = set(self._names)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operation."""
        if not func.is_view:
            for one in tree_leaves((args, kwargs)):
                if isinstance(one, Tensor):
                    self._note(one.data_ptr())
        return func(*args, **(kwargs or {}))

    def _note(self, address: int) -> None:
        """Notes all tensors that have memory at an address: from the last that starts before it, back to none."""
        number = bisect_right(self._starts, address) - 1
        while number >= 0 and self._furthest[number] > address:
            if self._ends[number] > address:
                self.unread.discard(self._names[number])
            number -= 1


def _span(tensor: Tensor) -> tuple[int, int]:
    """Returns the addresses from a tensor's first element to after its last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()
