"""Prefix caching that shares prompts and given prefixes, but no generated tokens."""

from bisect import bisect_left
from typing import Any

from ngrpo.rollout.vllm.private import key_cached_blocks
from ngrpo.rollout.vllm.settings import given_mixtures_of


def install() -> None:
    """Adds to the hash of every block that reaches beyond the prompt what it depends on. Safe to call again.

    vLLM's hash knows token ids only; a block computed from mixtures must not be taken for one of plain tokens. A block
    of a prefix gets the digests of the mixtures in it, which other requests share that start alike, however far: its
    hash also has that of the block before it. One beyond the prefix gets the request's id.
    """
    key_cached_blocks(_own_key)


def _own_key(request: Any, start: int, end: int) -> str | None:
    """Returns what the block of the positions from ``start`` to before ``end`` depends on beside its tokens."""
    mixtures = given_mixtures_of(request.sampling_params)
    if mixtures is None:
        return None
    if end > request.num_prompt_tokens:
        own: str = request.request_id
        return own
    positions, digests = mixtures
    return ",".join(digests[bisect_left(positions, start) : bisect_left(positions, end)]) or None
