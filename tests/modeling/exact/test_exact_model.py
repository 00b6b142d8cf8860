"""Which models and trainers are made exact."""

from pathlib import Path

import pytest
import torch
from tiny_kinds import tiny

from ngrpo.errors import SettingError
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.exact.calls import ExactCalls
from ngrpo.modeling.exact.linear import exact_linear
from ngrpo.modeling.exact.model import is_exact, make_exact
from ngrpo.modeling.loading import ModelSource
from ngrpo.training.models import ModelLoader
from ngrpo.training.update_settings import UpdateSettings


@pytest.mark.parametrize("exact", [True, False])
def test_policy_and_reference_are_exact_together(exact: bool, tiny_source: ModelSource) -> None:
    settings = UpdateSettings(exact=exact)
    models = ModelLoader(tiny_source, TokenSampling(), settings, torch.device("cpu"), None).load(True, True)
    assert models.reference is not None
    assert models.critic is not None
    assert is_exact(models.policy.lm) is is_exact(models.reference.lm) is exact
    assert not is_exact(models.critic.lm)


def test_other_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"rollout\.exact=true .* llama, mistral, qwen2, qwen3, .* type gemma2"):
        make_exact(tiny("gemma2", tmp_path).load())


def test_a_strategys_linear_maps_are_exact_inside_the_context_only() -> None:
    inputs, weight = torch.randn(7, 50), torch.randn(9, 50)
    with ExactCalls():
        made = torch.nn.functional.linear(inputs, weight)
    assert torch.equal(made, exact_linear(inputs, weight))
    torch.testing.assert_close(made, torch.nn.functional.linear(inputs, weight))
