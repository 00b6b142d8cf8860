"""The tensors that other code reads: what a loader passes over leaves no trace in what it loads into."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class ReadTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes inside which of some tensors an operation reads; to make a view of one is not to read it.

    Attributes:
        unread: names of the others, but for those without elements.

    Args:
        tensors: by name.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._spans: dict[int, dict[str, tuple[int, int]]] = {}
        for name, tensor in tensors.items():
            if tensor.numel():
                self._spans.setdefault(tensor.untyped_storage().data_ptr(), {})[name] = _span(tensor)

    @property
    def unread(self) -> set[str]:
        """See above."""
        return {name for spans in self._spans.values() for name in spans}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operation."""
        if not func.is_view:
            for one in tree_leaves((args, kwargs)):
                if isinstance(one, Tensor):
                    self._note(one)
        return func(*args, **(kwargs or {}))

    def _note(self, tensor: Tensor) -> None:
        spans = self._spans.get(tensor.untyped_storage().data_ptr(), {})
        at = tensor.data_ptr()
        for name in [name for name, (start, end) in spans.items() if start <= at < end]:
            del spans[name]


def _span(tensor: Tensor) -> tuple[int, int]:
    """Returns the addresses from a tensor's first element to after its last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()
