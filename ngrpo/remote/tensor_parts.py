"""Tensors on their way to a server: cut into parts of safetensors, each known by its SHA-256."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from safetensors.torch import save
from torch import Tensor

from ngrpo.utils.grouped import grouped


@dataclass(frozen=True)
class TensorPart:
    """Some tensors as the bytes of a safetensors file.

    Attributes:
        octets: the file.
        name: the SHA-256 of it, in hexadecimal: the checksum, and what the server calls it.
    """

    octets: bytes
    name: str

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "TensorPart":
        """Makes the part of some tensors; the same tensors give the same part."""
        ordered = {name: _alone(tensors[name].detach().cpu().contiguous()) for name in sorted(tensors)}
        octets = save(ordered)
        return cls(octets, hashlib.sha256(octets).hexdigest())


def _alone(tensor: Tensor) -> Tensor:
    """Returns a tensor with memory of its own, since safetensors takes none that share it."""
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def cut(tensors: Iterable[tuple[str, Tensor]], most_bytes: int) -> Iterator[TensorPart]:
    """Yields parts of about so many bytes at most; a larger tensor is a part of its own."""
    for part in grouped(tensors, most_bytes, lambda named: named[1].nbytes):
        yield TensorPart.of(dict(part))


def version_of(parts: Iterable[str]) -> str:
    """Returns 16 hexadecimal digits that name the weights in some parts."""
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()[:16]
