"""Which models can be split how many ways; that the parts make the whole is in tests/runs/test_tensor_parallel.py."""

from typing import Any

import pytest
from transformers import LlamaConfig, Olmo2Config, Phi3Config, PretrainedConfig, Qwen2Config, Qwen3Config

from ngrpo.errors import SettingError
from ngrpo.modeling.tensor_parallel import check_split

SHAPE: dict[str, Any] = {
    "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 96
}  # fmt: skip


@pytest.mark.parametrize("kind", [Qwen2Config, Qwen3Config, LlamaConfig])
def test_what_divides_is_split(kind: type[PretrainedConfig]):
    for size in (1, 2, 4):
        check_split(kind(**SHAPE), size)


@pytest.mark.parametrize(
    ("name", "value", "size"),
    [("num_attention_heads", 6, 4), ("num_key_value_heads", 4, 8), ("intermediate_size", 98, 4)],
)
def test_what_does_not_divide_is_refused(name: str, value: int, size: int):
    config = Qwen2Config(**SHAPE | {name: value})
    with pytest.raises(SettingError, match=rf"^trainer\.tensor_parallel_size={size} .* {name}={value}; choose"):
        check_split(config, size)
    check_split(config, 1)


@pytest.mark.parametrize("config", [Phi3Config(pad_token_id=0), Olmo2Config(), PretrainedConfig()])
def test_other_plans_are_refused(config: PretrainedConfig):
    config._name_or_path = "other"
    with pytest.raises(SettingError, match=r"^trainer\.tensor_parallel_size=2 .*model\.path=other.*tensor_parallel_si"):
        check_split(config, 2)
    check_split(config, 1)
