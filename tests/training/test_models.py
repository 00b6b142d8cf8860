"""The models of a run: which are loaded, and in what state."""

from dataclasses import replace

import pytest
import torch

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.lora import LoraSettings
from ngrpo.training.models import ModelLoader
from ngrpo.training.update_settings import UpdateSettings


def loader(source: ModelSource, exploration: Exploration | None = None, **settings) -> ModelLoader:
    made = UpdateSettings(head_rows=7, **settings)
    return ModelLoader(source, exploration or NeighborMixing(), made, torch.device("cpu"), None)


def test_what_is_not_needed_is_not_loaded(tiny_source: ModelSource):
    models = loader(tiny_source).load(reference=False, critic=False)
    assert (models.reference, models.critic) == (None, None)
    assert all(p.requires_grad for p in models.policy.parameters())
    assert models.policy.head_rows == 7


def test_reference_and_critic_start_from_the_policys_weights(tiny_source: ModelSource):
    models = loader(tiny_source).load(reference=True, critic=True)
    policy = models.policy.state_dict()
    assert models.reference is not None
    assert all(torch.equal(value, policy[name]) for name, value in models.reference.state_dict().items())
    assert not any(p.requires_grad for p in models.reference.parameters())
    assert models.critic is not None
    body = {name: value for name, value in models.critic.state_dict().items() if not name.startswith("head.")}
    assert body.keys() < policy.keys()
    assert all(torch.equal(value, policy[name]) for name, value in body.items())
    assert all(p.requires_grad for p in models.critic.parameters())


@pytest.mark.parametrize(("precision", "dtype"), [("bf16-mixed", torch.bfloat16), ("16-mixed", torch.float16)])
def test_only_the_reference_is_rounded_for_mixed_precision(
    tiny_source: ModelSource, precision: str, dtype: torch.dtype
):
    models = loader(tiny_source, precision=precision).load(reference=True, critic=False)
    assert models.reference is not None
    assert {p.dtype for p in models.reference.lm.parameters()} == {dtype}
    assert {p.dtype for p in models.policy.lm.parameters()} == {torch.float32}


@pytest.mark.parametrize(("exploration", "loaded"), [(NeighborMixing(), False), (HybridReasoning(), True)])
def test_an_adapter_needs_a_reference_only_beside_learned_exploration(
    exploration: Exploration, loaded: bool, tiny_source: ModelSource
):
    """The adapter can be switched off; what exploration has learned cannot."""
    pytest.importorskip("peft")
    source = replace(tiny_source, lora=LoraSettings(rank=2))
    models = loader(source, exploration).load(reference=True, critic=False)
    assert (models.reference is not None) == loaded
    trained = {name for name, p in models.policy.lm.named_parameters() if p.requires_grad}
    assert trained
    assert all(".lora_" in name for name in trained)
