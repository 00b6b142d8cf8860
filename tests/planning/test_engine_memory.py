"""The engines' planned bytes beside a real cache."""

import pytest
import torch
from tiny_kinds import CONFIGS

from ngrpo.planning.engine_memory import cache_bytes_per_token, torch_engine_memory, vllm_engine_memory
from ngrpo.rollout.torch_engine.kv_cache import SlotCache


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "gemma"])
def test_the_torch_engines_cache_is_the_real_one(kind):
    planned = torch_engine_memory(CONFIGS[kind], numbers=0, itemsize=4, slots=3, tokens=20)
    assert planned.cache == SlotCache(CONFIGS[kind], 4, 20, like=torch.zeros(1)).data.nbytes
    assert planned.cache_tokens == 80


def test_vllms_parts_make_its_fraction():
    memory = vllm_engine_memory(CONFIGS["qwen2"], 1000, 2, 0.5, 8 << 30, 1)
    assert memory.awake == 4 << 30
    assert memory.cache_tokens == memory.cache // cache_bytes_per_token(CONFIGS["qwen2"], 2)


def test_key_heads_are_shared_out_over_gpus_but_not_split():
    one, two, eight = (cache_bytes_per_token(CONFIGS["qwen2"], 2, size) for size in (1, 2, 8))
    assert (two, eight) == (one // 2, one // 2)


def test_captured_steps_work_in_memory_of_their_own():
    plain, captured = (torch_engine_memory(CONFIGS["qwen2"], 1000, 2, 3, 20, captured) for captured in (False, True))
    assert captured.working == 2 * plain.working > 0
    assert (captured.cache, captured.weights, captured.asleep) == (plain.cache, plain.weights, plain.asleep)
