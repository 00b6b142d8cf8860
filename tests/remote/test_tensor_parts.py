"""Parts of tensors: each tensor once, no part too large, the name a checksum of the content."""

import hashlib

import torch
from safetensors.torch import load

from ngrpo.remote.tensor_parts import TensorPart, cut, version_of

TENSORS = [(f"layer.{number}", torch.randn(number + 1, 4)) for number in range(12)]


def test_every_tensor_is_in_one_part_and_parts_keep_to_their_size() -> None:
    parts = list(cut(TENSORS, 300))
    assert len(parts) > 3
    found: dict[str, torch.Tensor] = {}
    for part in parts:
        inside = load(part.octets)
        assert len(inside) == 1 or sum(tensor.nbytes for tensor in inside.values()) <= 300
        assert not found.keys() & inside.keys()
        found |= inside
    assert all(torch.equal(found[name], tensor) for name, tensor in TENSORS)


def test_the_name_is_the_checksum_and_depends_on_every_bit() -> None:
    part = TensorPart.of(dict(TENSORS))
    assert part.name == hashlib.sha256(part.octets).hexdigest()
    assert TensorPart.of(dict(reversed(TENSORS))) == part
    changed = dict(TENSORS)
    changed["layer.3"] = -changed["layer.3"]
    assert TensorPart.of(changed).name != part.name


def test_views_of_one_tensor_are_parts_of_their_own() -> None:
    whole = torch.arange(8.0)
    inside = load(TensorPart.of({"a": whole[:4], "b": whole[2:]}).octets)
    assert torch.equal(inside["a"], whole[:4])
    assert torch.equal(inside["b"], whole[2:])


def test_the_version_does_not_depend_on_the_order_of_parts() -> None:
    assert version_of(["a", "b"]) == version_of(["b", "a"]) != version_of(["a"])
