"""Counter-based randomness: a hash of (request key, absolute position, stream), drawn on the device.

A draw depends on nothing else, so it is the same in a batch of 1 and of 512, after a preemption, on every
tensor-parallel rank and in every engine, and it never has to be stored.
"""

import hashlib
import math
import zlib

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B1
"""2^32 over the golden ratio: spreads consecutive positions."""


def request_key(seed: int, *parts: int) -> int:
    """Returns the 63-bit key of one rollout from the run's seed and what names the rollout.

    Args:
        seed: the run's seed.
        parts: e.g. iteration, problem key, number of the sample within its group.
    """
    text = ",".join(map(str, (seed, *parts)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@torch.compiler.assume_constant_result
def stream_id(name: str) -> int:
    """Returns the number of a named stream ("gate", "token", ...) as a signed 32-bit integer."""
    return int.from_bytes(zlib.crc32(name.encode()).to_bytes(4, "big"), "big", signed=True)


def uniform(keys: Tensor, positions: Tensor, stream: str, index: Tensor | int = 0) -> Tensor:
    """Returns draws from U(0, 1), never 0 and never 1; as exact near 0 as 32 bits are, see `fraction`.

    Args:
        keys: request keys, int64, shape [R] (or anything that broadcasts).
        positions: absolute positions (slot in prompt + response), int64, broadcastable to ``keys``.
        stream: name of the stream; streams are independent of each other.
        index: a further counter, e.g. the candidate's token id; broadcastable to ``keys``.

    Returns:
        float32, the broadcast shape.
    """
    return fraction(_hash(keys, positions, stream, index))


def gumbel(keys: Tensor, positions: Tensor, stream: str, index: Tensor | int = 0) -> Tensor:
    """Returns standard Gumbel draws; arguments and shape as for `uniform`, float32, between -2.9 and 22.9."""
    return gumbel_of(uniform(keys, positions, stream, index))


def normal(keys: Tensor, positions: Tensor, stream: str, index: Tensor | int = 0) -> Tensor:
    """Returns standard normal draws by Box and Muller; arguments and shape as for `uniform`, float32.

    Each has two uniforms of its own; none is larger than 6.8.
    """
    radius = torch.sqrt(-2.0 * torch.log(uniform(keys, positions, stream, index)))
    return radius * torch.cos(2.0 * math.pi * uniform(keys, positions, f"{stream} angle", index))


def fraction(bits: Tensor) -> Tensor:
    """Returns ``v = (bits + 1/2) 2^-32`` of 32 bits in int32, read without a sign; float32, the same shape.

    Near 0 the grid is 2^-32; near 1 it is float32's own of 2^-24, and the largest value is 1 - 2^-24. Both halves are
    exact in float32, so that their sum is rounded once, on every device alike.
    """
    high, low = _shift(bits).float(), (bits & 0xFFFF).float()
    return ((high * 65536.0 + (low + 0.5)) * 2.0**-32).clamp(max=1.0 - 2.0**-24)


def gumbel_of(fractions: Tensor) -> Tensor:
    """Returns ``-log(-log(1 - v))``, standard Gumbel for v from U(0, 1).

    Large draws come of small v, where `fraction` is fine: a token is drawn as often as its probability says down to
    about 2^-32. By ``-log(-log v)`` the largest draws would come of v near 1, and the tail of a large vocabulary would
    starve on the grid there.
    """
    return -torch.log(-torch.log1p(-fractions))


def _hash(keys: Tensor, positions: Tensor, stream: str, index: Tensor | int) -> Tensor:
    """Returns 32 bits in int32. The key goes in before and after the position.

    With the key before it only, two rollouts could walk the same cycle of states, one some positions behind the other.
    """
    low, high = _int32(keys), _int32(keys >> 32)
    state = _mix(low ^ stream_id(stream))
    state = _mix(state ^ high)
    state = _mix(state + _int32(positions * _GOLDEN))
    state = _mix(state ^ low)
    # Filled on the device: a number that is copied there would wait for it.
    counter = index if isinstance(index, Tensor) else torch.full((), index, device=keys.device)
    return _mix(state + _mix(_int32(counter)))


def _mix(state: Tensor) -> Tensor:
    """One round of a 32-bit integer hash; int32, products wrap."""
    state = (_shift(state) ^ state) * 0x45D9F3B
    state = (_shift(state) ^ state) * 0x45D9F3B
    return _shift(state) ^ state


def _shift(state: Tensor) -> Tensor:
    """Logical right shift by 16 of int32, whose own shift is arithmetic."""
    return (state >> 16) & 0xFFFF


def _int32(value: Tensor) -> Tensor:
    """Keeps the low 32 bits; casts alone saturate or not depending on the device."""
    low = value.long() & 0xFFFFFFFF
    return (low - ((low >> 31) << 32)).int()
