"""What float16 cannot hold is told by its name: weights, and the module whose output overflows."""

import pytest
import torch
from made_rollouts import rollout
from torch import nn

from ngrpo.errors import RunError, SettingError
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.layers import prepare_layers
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.overflow import cast_weights, check_range, first_overflow
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.precision import computing_in

LARGE = [("small", torch.ones(2)), ("large", torch.tensor([65_000.0, 65_536.0]))]
BATCH = pack([rollout(range(5, 9), [7] * 5)])


def test_weights_beyond_the_range_are_refused_by_name():
    with pytest.raises(
        RunError, match=r"^the weight large has .* 65504 of rollout\.engine\.dtype=float16; set rollout"
    ):
        dict(cast_weights(LARGE, torch.float16))
    with pytest.raises(SettingError, match=r"^model\.path=some has numbers .* in large; set trainer\.precision=bf16"):
        check_range(LARGE, torch.float16, "some")
    check_range(LARGE, torch.bfloat16, "some")
    cast = dict(cast_weights([*LARGE, ("infinite", torch.tensor([torch.inf]))], torch.bfloat16))
    assert {name: tensor.dtype for name, tensor in cast.items()} == dict.fromkeys(
        ("small", "large", "infinite"), torch.bfloat16
    )


def test_whole_numbers_of_a_quantised_model_are_no_weights():
    for dtype in (torch.int8, torch.uint8):
        with pytest.raises(RunError, match="^the weight layer is u?int8, which says nothing without the scale"):
            dict(cast_weights([("layer", torch.ones(2, 2, dtype=dtype))], torch.bfloat16))


def test_what_was_infinite_before_is_not_the_casts_fault():
    """Weights that are not finite are told elsewhere."""
    assert dict(cast_weights([("bad", torch.tensor([torch.inf, 1.0]))], torch.float16))["bad"].isinf().any()


def overflowing(source: ModelSource, name: str, factor: float) -> ScoringModel:
    model = ScoringModel(source.load())
    weight = model.lm.get_parameter(name)
    with torch.no_grad():
        weight.mul_(factor / weight.abs().max())
    return model


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("weight", "module"),
    [
        ("model.layers.1.mlp.up_proj.weight", "lm.model.layers.1.mlp.up_proj"),
        ("model.layers.0.self_attn.v_proj.weight", "lm.model.layers.0.self_attn.v_proj"),
    ],
)
def test_the_first_module_is_named(tiny_source: ModelSource, weight: str, module: str, compiled: bool):
    model = overflowing(tiny_source, weight, 6e4)
    prepare_layers(model.lm.base_model.layers, "off", compiled, backend="eager")
    for dtype, expected in ((torch.float16, module), (torch.bfloat16, None)):
        with torch.no_grad(), computing_in(model, dtype), first_overflow(model) as found:
            scores = model(BATCH, 1.0, TokenSampling())
        assert found() == expected
        assert bool(scores.log_prob.isfinite().all()) == (expected is None)


def test_a_sum_between_modules_is_its_owners():
    """The residual stream is a sum that no module of its own makes."""

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Identity()

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return self.inner(given) + given

    model = nn.ModuleDict({"block": Sum()})
    with first_overflow(model) as found:
        model["block"](torch.tensor([4e4], dtype=torch.float16))
    assert found() == "block"


def test_hooks_are_gone_afterwards(tiny_source: ModelSource):
    model = ScoringModel(tiny_source.load())
    before = [len(module._forward_hooks) for module in model.modules()]
    with first_overflow(model):
        pass
    assert [len(module._forward_hooks) for module in model.modules()] == before
