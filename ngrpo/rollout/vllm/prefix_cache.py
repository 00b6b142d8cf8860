"""Prefix caching that shares prompts, but no generated tokens."""

from typing import Any

from vllm.v1.core import block_pool, kv_cache_utils

from ngrpo.rollout.vllm.settings import CONFIG_KEY


def install() -> None:
    """Adds the request's id to the hash of every block that reaches beyond the prompt. Safe to call again.

    vLLM's hash knows token ids only; a block computed from mixtures must not be taken for one of plain tokens.
    """
    extra_keys = kv_cache_utils.generate_block_hash_extra_keys
    if getattr(extra_keys, "ngrpo", False):
        return

    def keys_with_request(request: Any, start: int, end: int, start_mm: int) -> tuple[tuple[Any, ...] | None, int]:
        keys, next_mm = extra_keys(request, start, end, start_mm)
        ours = request.sampling_params is not None and CONFIG_KEY in (request.sampling_params.extra_args or {})
        if not ours or end <= request.num_prompt_tokens:
            return keys, next_mm
        return (*(keys or ()), (CONFIG_KEY, request.request_id)), next_mm

    keys_with_request.ngrpo = True  # type: ignore[attr-defined]
    kv_cache_utils.generate_block_hash_extra_keys = keys_with_request
    block_pool.generate_block_hash_extra_keys = keys_with_request
