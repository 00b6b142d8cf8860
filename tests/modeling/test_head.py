"""What stands after the head: values against the models' own forward, slopes against autograd."""

import pytest
import torch
from made_models import VOCABULARY, tiny_config, tiny_model
from made_rollouts import rollout

from ngrpo.errors import SettingError
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.attention import IMPLEMENTATION
from ngrpo.modeling.head import LogitMap, output_logits
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel

SCALED = {
    "granite": {"logits_scaling": 5.0},
    "granitemoe": {"logits_scaling": 5.0, "num_local_experts": 4, "num_experts_per_tok": 2},
    "cohere": {"logit_scale": 0.3},
    "hyperclovax": {"logits_scaling": 0.4},
    "gemma2": {
        "final_logit_softcapping": 2.0,
        "attn_logit_softcapping": None,
        "layer_types": ["full_attention"] * 2,
        "head_dim": 8,
        "query_pre_attn_scalar": 8,
    },
    "nanochat": {"final_logit_softcapping": 1.5},
}


class Densities(TokenSampling):
    """Scores like its base, by the way of strategies that have a density of their own."""

    def log_prob(self, logits, step, ctx):
        return super().log_prob(logits, step, ctx)


@pytest.mark.parametrize("kind", SCALED)
def test_logits_are_those_of_the_models_forward(kind: str):
    config = tiny_config(kind, **SCALED[kind])
    model = tiny_model(config)
    hidden = torch.randn(1, 7, config.hidden_size)
    model.model.forward = lambda **_: type(
        "Output", (), {"last_hidden_state": hidden, "__getattr__": lambda *_: None}
    )()
    expected = model(input_ids=torch.zeros(1, 7, dtype=torch.int64)).logits
    torch.testing.assert_close(output_logits(model, hidden), expected)
    assert not torch.allclose(model.lm_head(hidden), expected, atol=0.3)


@pytest.mark.parametrize("strategy", [TokenSampling(), Densities()], ids=["fused", "density"])
@pytest.mark.parametrize("kind", SCALED)
def test_scores_are_those_of_the_models_forward(kind: str, strategy: TokenSampling):
    config = tiny_config(kind, **SCALED[kind])
    tokens = torch.randint(3, VOCABULARY, (9,), generator=torch.Generator().manual_seed(0)).tolist()
    log_probs = tiny_model(config)(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].log_softmax(-1)
    model = ScoringModel(tiny_model(config, IMPLEMENTATION))
    scores = model(pack([rollout(tokens[:3], tokens[3:])]), 1.0, strategy)
    torch.testing.assert_close(scores.log_prob, log_probs[range(2, 8), tokens[3:]], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "logit_map", [LogitMap(), LogitMap(scale=0.3), LogitMap(cap=2.0), LogitMap(scale=3.0, cap=5.0)]
)
def test_the_slope_is_that_of_autograd(logit_map: LogitMap):
    product = (torch.randn(50, dtype=torch.float64) * 4).requires_grad_()
    logits = logit_map(product)
    (expected,) = torch.autograd.grad(logits.sum(), product)
    torch.testing.assert_close(torch.as_tensor(logit_map.slope(logits)).expand(50).double(), expected)


@pytest.mark.parametrize("value", [0, -1.0, None, "2", float("nan"), True])
@pytest.mark.parametrize(("kind", "name"), [("granite", "logits_scaling"), ("cohere", "logit_scale")])
def test_factors_that_are_none_are_refused(kind: str, name: str, value: object):
    config = tiny_config(kind)
    vars(config)[name] = value
    with pytest.raises(SettingError, match=rf"^model\.path=.*{name}={value}.*\.$"):
        LogitMap.of(config)


def test_a_missing_cap_bounds_nothing():
    config = tiny_config("gemma2", final_logit_softcapping=None)
    assert LogitMap.of(config) == LogitMap()
