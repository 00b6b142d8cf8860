"""What a pass costs, against the operations that PyTorch counts."""

import pytest
import torch
from made_rollouts import rollout
from torch.utils.flop_counter import FlopCounterMode

from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.cost import PassCost
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel


def test_linear_part_is_two_operations_a_weight(tiny_source: ModelSource):
    lm = tiny_source.load()
    weights = sum(p.numel() for n, p in lm.named_parameters() if p.dim() == 2 and "embed" not in n)
    assert PassCost.of(lm.config).linear == 2 * weights


@pytest.mark.parametrize("tokens", [7, 40])
def test_products_are_those_that_pytorch_counts(tiny_source: ModelSource, tokens: int):
    """Which does not count the attention of a CPU."""
    model = ScoringModel(tiny_source.load())
    batch = pack([rollout([5], [7] * (tokens - 1))])
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(batch, 1.0, TokenSampling())
    # A sequence's last token scores nothing, and its logits are not made.
    head = 2 * model.lm.config.vocab_size * model.lm.config.hidden_size
    beyond = counter.get_total_flops() - (PassCost.of(model.lm.config).linear * tokens - head)
    rotary = 2 * tokens * 4  # angles of 4 frequencies, which transformers before 5.16 makes by a matrix product
    assert beyond in (0, rotary)


def test_attention_is_two_products_of_half_a_square(tiny_source: ModelSource):
    config = tiny_source.config()
    heads, size, tokens = 4, 8, 10
    one = 2 * tokens * tokens * size  # of a head's queries and keys; the values' is as dear
    expected = config.num_hidden_layers * heads * 2 * one / 2
    cost = PassCost.of(config)
    assert cost(tokens) - cost.linear * tokens == expected
