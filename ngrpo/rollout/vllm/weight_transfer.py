"""The transfer of the policy's weights into vLLM's workers, with a check that they are served as they were sent."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from ngrpo.errors import RunError
from ngrpo.rollout.vllm.checksum import checksum
from ngrpo.rollout.vllm.tensor_ipc import Bucket, serialize_handles

_BUCKET_BYTES = 512 << 20
_SHOWN = 3


class WeightTransfer:
    """Transfers weights and checks them.

    Every worker must receive every tensor bit for bit, and its loading must fill every parameter that it serves. vLLM
    lays weights out in its own way (it fuses and splits them), so that the loading itself is checked once, with
    `unchanged`: weights that it has loaded from the model's folder must stay bit for bit when they come again.

    Args:
        call: calls a method of every worker, and returns what they return.
        shared_with: number of workers in other processes, which open the tensors through handles; None for the worker
            of this process, which gets them by reference.
    """

    def __init__(self, call: Callable[..., list[Any]], shared_with: int | None) -> None:
        self._call = call
        self._shared_with = shared_with

    def send(self, tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> None:
        """Transfers weights by their transformers names, in buckets and in the served dtype.

        Raises:
            RuntimeError: a worker received something else, or serves a parameter that nothing came for.
        """
        self._call("ngrpo_expect_weights")
        sent: dict[str, int] = {}
        for bucket in _buckets((name, tensor.detach().to(dtype)) for name, tensor in tensors):
            sent |= {name: checksum(tensor) for name, tensor in bucket}
            self._send(bucket)
        for received in self._call("ngrpo_received_weights"):
            if wrong := sorted(name for name in sent.keys() | received.keys() if sent.get(name) != received.get(name)):
                raise RuntimeError(f"vLLM received other weights than were sent: {_listed(wrong)}")
        for unwritten in self._call("ngrpo_unwritten_weights"):
            if unwritten:
                raise RuntimeError(f"vLLM serves parameters that no weights came for: {_listed(unwritten)}")

    def send_unchanged(self, tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype, path: str) -> None:
        """Transfers the weights that the workers have loaded from the folder ``path``.

        Raises:
            RunError: they serve something else after it.
            RuntimeError: see `send`.
        """
        before = self._call("ngrpo_served_weights")
        try:
            self.send(tensors, dtype)
        except RuntimeError as error:
            raise RunError(_refusal(path, str(error)), everywhere=True) from error
        after = self._call("ngrpo_served_weights")
        changed = sorted({n for old, new in zip(before, after, strict=True) for n in old if old[n] != new[n]})
        if changed:
            said = f"weights that are sent as they were loaded change {_listed(changed)}"
            raise RunError(_refusal(path, said), everywhere=True)

    def _send(self, bucket: Bucket) -> None:
        if self._shared_with is None:
            self._call("ngrpo_load_weights", bucket)
        else:
            self._call("ngrpo_load_shared", [serialize_handles(bucket) for _ in range(self._shared_with)])


def _refusal(path: str, reason: str) -> str:
    return f"vLLM would not serve the weights of model.path={path} as they are trained ({reason}); set rollout=torch."


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _buckets(tensors: Iterable[tuple[str, Tensor]]) -> Iterator[Bucket]:
    """Groups tensors so that not much more than half a GiB is gathered at a time."""
    bucket: Bucket = []
    size = 0
    for name, tensor in tensors:
        bucket.append((name, tensor))
        size += tensor.nbytes
        if size >= _BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket
