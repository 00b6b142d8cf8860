"""Prefix caching that shares prompts and given prefixes, but no generated tokens."""

from typing import Any

from vllm.v1.core import block_pool, kv_cache_utils

from ngrpo.rollout.vllm.settings import CONFIG_KEY, prefix_of


def install() -> None:
    """Adds to the hash of every block that reaches beyond the prompt what it depends on. Safe to call again.

    vLLM's hash knows token ids only; a block computed from mixtures must not be taken for one of plain tokens. A block
    of a prefix gets the digest of its mixtures, which other continuations share; one beyond it gets the request's id.
    """
    extra_keys = kv_cache_utils.generate_block_hash_extra_keys
    if getattr(extra_keys, "ngrpo", False):
        return

    def keys_with_request(request: Any, start: int, end: int, start_mm: int) -> tuple[tuple[Any, ...] | None, int]:
        keys, next_mm = extra_keys(request, start, end, start_mm)
        own = _own_key(request, end)
        return (keys if own is None else (*(keys or ()), (CONFIG_KEY, own))), next_mm

    keys_with_request.ngrpo = True  # type: ignore[attr-defined]
    kv_cache_utils.generate_block_hash_extra_keys = keys_with_request
    block_pool.generate_block_hash_extra_keys = keys_with_request


def _own_key(request: Any, end: int) -> str | None:
    """Returns what a block that ends before position ``end`` depends on beside its tokens."""
    prefix = prefix_of(request.sampling_params)
    if prefix is None:
        return None
    given, digest = prefix
    if end > request.num_prompt_tokens:
        own: str = request.request_id
        return own
    return digest if end > request.num_prompt_tokens - given else None
