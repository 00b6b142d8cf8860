"""Packed attention against softmax attention of one sequence at a time."""

import pytest
import torch
from torch import Tensor
from transformers import Gemma2Config, LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from ngrpo.errors import SettingError
from ngrpo.modeling.attention import PackedAttention, check_attention

LENGTHS = [5, 1, 7]
SCALE = 0.3


def parts(heads: int, shared: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(1, heads, 13, 8), torch.randn(1, shared, 13, 8), torch.randn(1, shared, 13, 8)


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    plan = PackedAttention(LENGTHS, torch.device("cpu"))
    return plan.attend(torch.nn.Module(), query, key, value, SCALE)


def eager(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """One head, one sequence and one token at a time."""
    output = torch.zeros_like(query)
    share = query.shape[1] // key.shape[1]
    start = 0
    for length in LENGTHS:
        for head in range(query.shape[1]):
            for t in range(start, start + length):
                past = slice(start, t + 1)
                scores = key[0, head // share, past] @ query[0, head, t] * SCALE
                output[0, head, t] = scores.softmax(0) @ value[0, head // share, past]
        start += length
    return output


@pytest.mark.parametrize(("heads", "shared"), [(4, 4), (4, 2), (6, 1)])
def test_equals_softmax_attention_of_each_sequence(heads: int, shared: int):
    query, key, value = parts(heads, shared)
    torch.testing.assert_close(attend(query, key, value), eager(query, key, value), atol=1e-6, rtol=1e-5)


def test_no_attention_across_sequences():
    before = attend(*parts(4, 2))
    changed = parts(4, 2)
    for part in changed:
        part[:, :, 5:6] += 10.0
    after = attend(*changed)
    assert torch.equal(before[:, :, :5], after[:, :, :5])
    assert torch.equal(before[:, :, 6:], after[:, :, 6:])
    assert not torch.equal(before[:, :, 5], after[:, :, 5])


def test_no_attention_to_later_tokens():
    query, key, value = parts(4, 2)
    before = attend(query, key, value)
    key[:, :, 9:] += 10.0
    value[:, :, 9:] += 10.0
    after = attend(query, key, value)
    torch.testing.assert_close(before[:, :, :9], after[:, :, :9])
    assert (before[:, :, 9:] - after[:, :, 9:]).abs().amax(dim=(0, 1, 3)).min() > 1.0


@pytest.mark.parametrize(
    "config",
    [
        Qwen2Config(use_sliding_window=True, sliding_window=8, max_window_layers=0, num_hidden_layers=2),
        Gemma2Config(),
        MistralConfig(sliding_window=8),
    ],
)
def test_sliding_windows_are_refused(config: PretrainedConfig):
    config._name_or_path = "some/model"
    with pytest.raises(SettingError, match=r"^model\.path=some/model has layers of type .*sliding_attention.*\.$"):
        check_attention(config)


@pytest.mark.parametrize(
    "config",
    [Qwen2Config(sliding_window=8), Qwen3Config(), LlamaConfig(), MistralConfig(sliding_window=None)],
)
def test_full_attention_is_accepted(config: PretrainedConfig):
    check_attention(config)
