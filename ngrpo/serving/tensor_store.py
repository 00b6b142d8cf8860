"""The store of tensors that clients send: each part by its SHA-256, the least recently used ones dropped."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from http import HTTPStatus

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from ngrpo.serving.refusals import Refusal, missing_tensors, too_large

_NAME = 64
"""Characters of a SHA-256."""


class TensorStore:
    """Parts of safetensors in host memory, for any number of threads.

    Args:
        most_bytes: of all parts together.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._parts: OrderedDict[str, dict[str, Tensor]] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._lock = threading.Lock()

    def put(self, name: str, octets: bytes) -> None:
        """Keeps a part.

        Raises:
            Refusal: it is not what its name says, no safetensors, or too large.
        """
        check_name(name)
        if len(octets) > self.most_bytes:
            raise too_large("a part of tensors", self.most_bytes / 2**20)
        if (found := hashlib.sha256(octets).hexdigest()) != name:
            raise Refusal(
                HTTPStatus.BAD_REQUEST,
                f"the tensors have the SHA-256 {found[:12]}..., not {name[:12]}...; send them again.",
            )
        try:
            tensors = load(octets)
        except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
            raise Refusal(HTTPStatus.BAD_REQUEST, "the body is no safetensors file; send one.") from error
        with self._lock:
            self._parts[name], self._sizes[name] = tensors, len(octets)
            self._parts.move_to_end(name)
            while sum(self._sizes.values()) > self.most_bytes:
                dropped, _ = self._parts.popitem(last=False)
                del self._sizes[dropped]

    def has(self, name: str) -> bool:
        """Says whether a part is here, and keeps it longer."""
        with self._lock:
            if name in self._parts:
                self._parts.move_to_end(name)
            return name in self._parts

    def get(self, names: Sequence[str]) -> list[dict[str, Tensor]]:
        """Returns parts.

        Raises:
            Refusal: some are not here.
        """
        with self._lock:
            if missing := [name for name in names if name not in self._parts]:
                raise missing_tensors(missing)
            for name in names:
                self._parts.move_to_end(name)
            return [self._parts[name] for name in names]

    def drop(self, names: Sequence[str]) -> None:
        """Frees parts."""
        with self._lock:
            for name in names:
                self._parts.pop(name, None)
                self._sizes.pop(name, None)


def check_name(name: str) -> None:
    """Refuses what is no SHA-256."""
    if len(name) != _NAME or not set(name) <= set("0123456789abcdef"):
        raise Refusal(HTTPStatus.BAD_REQUEST, f"{name[:12]!r} is no SHA-256; name tensors by theirs, in hexadecimal.")
