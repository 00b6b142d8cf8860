"""Prefix caching that shares prompts and given prefixes, but no generated tokens."""

from typing import Any

from ngrpo.rollout.vllm.private import key_cached_blocks
from ngrpo.rollout.vllm.settings import prefix_of


def install() -> None:
    """Adds to the hash of every block that reaches beyond the prompt what it depends on. Safe to call again.

    vLLM's hash knows token ids only; a block computed from mixtures must not be taken for one of plain tokens. A block
    of a prefix gets the digest of its mixtures, which other continuations share; one beyond it gets the request's id.
    """
    key_cached_blocks(_own_key)


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
