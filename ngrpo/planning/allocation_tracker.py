"""The bytes that are alive while a computation runs on the meta device, where nothing is stored."""

import weakref
from collections.abc import Iterable
from typing import Any

from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class AllocationTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up every storage that an operator makes inside the context, and takes off those that are freed.

    Meta tensors have sizes and lifetimes, but no data: autograd keeps and drops them as it would real ones.

    Args:
        existing: tensors that are there before; their storages are not counted.

    Attributes:
        live: bytes at present.
        peak: the most since the start, or since `restart_peak`.
    """

    def __init__(self, existing: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._existing = [tensor.untyped_storage() for tensor in existing]  # kept: their addresses stand for them
        self._known = {storage._cdata for storage in self._existing}
        self.live = 0
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operator, and counts what it made."""
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._add(tensor.untyped_storage())
        return made

    def restart_peak(self) -> int:
        """Returns the peak so far, and starts another."""
        peak, self.peak = self.peak, self.live
        return peak

    def _add(self, storage: UntypedStorage) -> None:
        address, size = storage._cdata, storage.nbytes()
        if address in self._known:
            return
        self._known.add(address)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._remove, address, size)

    def _remove(self, address: int, size: int) -> None:
        self._known.discard(address)
        self.live -= size
