"""The transfer of the policy's weights into vLLM's workers, with a check that they are served as they were sent."""

import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Protocol

import torch
from torch import Tensor

from ngrpo.errors import RunError
from ngrpo.modeling.overflow import cast_weights
from ngrpo.rollout.vllm.checked_loading import listed
from ngrpo.rollout.vllm.checksum import named_checksums
from ngrpo.rollout.vllm.weight_senders import WeightSender
from ngrpo.utils.grouped import grouped

_BUCKET_BYTES = 512 << 20
INCOMPLETE = "incomplete"
"""The weight version of an engine during a transfer and after one that failed."""


class Served(Protocol):
    """What is used of vLLM's ``LLM``."""

    def start_weight_update(self) -> None: ...  # noqa: D102

    def update_weights(self, request: dict[str, Any]) -> None: ...  # noqa: D102

    def finish_weight_update(self, weight_version: str | None = None) -> None: ...  # noqa: D102

    def update_weight_version(self, new_version: str) -> None: ...  # noqa: D102

    def get_weight_version(self) -> str: ...  # noqa: D102

    def collective_rpc(self, method: str, args: tuple[Any, ...] = ()) -> list[Any]: ...  # noqa: D102


class WeightTransfer:
    """Transfers weights and checks them.

    Every worker must receive every tensor once and bit for bit, its loading must fill every parameter that it serves,
    and some worker must load of each tensor (where experts are spread, not all do). vLLM lays weights out in its own
    way (it fuses and splits them), so that the loading itself is checked once, with `send_unchanged`: weights that it
    loaded from the model's folder must stay as they are when they come again.

    Args:
        llm: the engine.
        sender: how tensors get to its workers.
        turn: has the engine to itself, for a single call of it.
    """

    def __init__(
        self, llm: Served, sender: WeightSender, turn: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        self._llm = llm
        self._sender = sender
        self._turn = turn
        self._whole = True

    @property
    def version(self) -> str:
        """Which weights are served: "default" for those of the model's folder, else a digest of what was sent."""
        with self._turn():
            return self._llm.get_weight_version()

    def require_whole(self) -> None:
        """Refuses an engine that serves parts of several sets of weights.

        Raises:
            RuntimeError: a transfer failed, and none has succeeded since.
        """
        if not self._whole:
            raise RuntimeError(
                "vLLM does not serve a whole set of weights since a transfer failed; call sync_weights again"
            )

    def send(self, tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> None:
        """Transfers weights by their transformers names, in buckets and in the served dtype.

        Raises:
            RunError: a number is too large for the dtype.
            RuntimeError: a worker received something else, or serves a parameter that nothing came for, or no worker
                serves a tensor that came.
        """
        self._whole = False
        with self._turn():
            self._llm.update_weight_version(INCOMPLETE)
            self._llm.start_weight_update()
        try:
            sent = self._send(tensors, dtype)
            for fault in self._call("ngrpo_weight_fault", sent):
                if fault:
                    raise RuntimeError(fault)
            if unread := set.intersection(*map(set, self._call("ngrpo_unread_weights"))):
                raise RuntimeError(f"vLLM serves nothing of weights that were sent: {listed(sorted(unread))}")
        except BaseException:
            with suppress(Exception), self._turn():  # of workers that have ended theirs, or of a dead engine
                self._llm.finish_weight_update()
            raise
        with self._turn():
            self._llm.finish_weight_update(weight_version=_digest(sent))
        self._whole = True

    def send_unchanged(self, tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype, path: str) -> None:
        """Transfers the weights that the workers have loaded from the folder ``path``.

        Raises:
            RunError: they serve something else after it.
            RuntimeError: see `send`.
        """
        before = self._call("ngrpo_served_weights")
        try:
            self.send(tensors, dtype)
        except RunError:
            raise
        except RuntimeError as error:
            raise RunError(_refusal(path, str(error)), everywhere=True) from error
        after = self._call("ngrpo_served_weights")
        changed = sorted({n for old, new in zip(before, after, strict=True) for n in old if old[n] != new[n]})
        if changed:
            self._whole = False
            said = f"weights that are sent as they were loaded change {listed(changed)}"
            raise RunError(_refusal(path, said), everywhere=True)

    def _send(self, tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> dict[str, int]:
        """Returns the checksums of what was sent."""
        sent: dict[str, int] = {}
        for bucket in grouped(cast_weights(tensors, dtype), _BUCKET_BYTES, lambda named: named[1].nbytes):
            sent |= named_checksums(bucket)
            self._sender.send(bucket, self._update)
        return sent

    def _update(self, update_info: dict[str, Any] | list[dict[str, Any]]) -> None:
        with self._turn():
            self._llm.update_weights({"update_info": update_info})

    def _call(self, method: str, *args: Any) -> list[Any]:
        with self._turn():
            return self._llm.collective_rpc(method, args=args)


def _digest(sent: dict[str, int]) -> str:
    """Returns 16 hexadecimal digits that name a set of weights."""
    return hashlib.sha256(json.dumps(sorted(sent.items())).encode()).hexdigest()[:16]


def _refusal(path: str, reason: str) -> str:
    return f"vLLM would not serve the weights of model.path={path} as they are trained ({reason}); set rollout=torch."
