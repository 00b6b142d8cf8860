"""Adapters: what trains, what is transferred, what the reference is."""

from dataclasses import replace

import pytest
import torch
from made_models import tiny_config, tiny_model
from made_rollouts import rollout
from torch import Tensor

from ngrpo.entrypoints.input_validation import check_modules
from ngrpo.errors import SettingError
from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.lora import LoraSettings, adapter_off, add_adapter, merged
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.sharding import named_weights
from ngrpo.utils import optional_packages as extras

BATCH = pack([rollout([7, 8, 9], [10, 11], {3: {20: 0.75, 21: 0.25}}), rollout([12], [13])])


def test_merging_by_hand():
    weights = {
        "a.base_layer.weight": torch.tensor([[1.0, 2.0]]), "a.base_layer.bias": torch.tensor([5.0]),
        "a.lora_A.default.weight": torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
        "a.lora_B.default.weight": torch.tensor([[3.0, 4.0]]), "norm.weight": torch.tensor([1.0]),
    }  # fmt: skip
    settings = LoraSettings.__new__(LoraSettings)  # peft need not be there
    for name, value in (("rank", 2), ("alpha", 1)):
        object.__setattr__(settings, name, value)
    made = {name: weight.tolist() for name, weight in merged(weights, settings, lambda tensor: tensor)}
    assert made == {"a.weight": [[2.5, 4.0]], "a.bias": [5.0], "norm.weight": [1.0]}


def test_a_model_without_adapters_keeps_its_names():
    weights = {"x.lora_like": torch.ones(1), "y": torch.zeros(1)}
    assert dict(merged(weights, None, lambda tensor: tensor)) == weights


def test_peft_is_asked_for(monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"^model\.lora\.rank=4 needs peft.*ngrpo\[peft\]'\.$"):
        LoraSettings(rank=4)
    with pytest.raises(SettingError, match=r"^model\.lora\.rank=0 is too small"):
        LoraSettings(rank=0)


@pytest.fixture
def adapted(tiny_source: ModelSource) -> tuple[ScoringModel, LoraSettings]:
    """With a B that is not zero."""
    pytest.importorskip("peft")
    settings = LoraSettings(rank=2, alpha=8, targets=["q_proj", "down_proj"])
    model = ScoringModel(tiny_source.load())
    add_adapter(model.lm, settings)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.lm.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.1
    return model, settings


def log_probs(model: ScoringModel) -> Tensor:
    return model(BATCH, 0.8, NeighborMixing()).log_prob


def test_adapters_alone_learn(adapted):
    model, _ = adapted
    log_probs(model).sum().backward()
    learning = {name for name, p in model.named_parameters() if p.grad is not None}
    assert learning == {name for name, p in model.named_parameters() if p.requires_grad}
    assert len(learning) == 2 * 2 * 2  # layers, targets, A and B
    assert all(".lora_" in name for name in learning)


def test_without_the_adapter_it_is_the_base_model_and_gradients_stay_as_they_were(adapted, tiny_source: ModelSource):
    model, _ = adapted
    base = log_probs(ScoringModel(tiny_source.load()))
    wanted = [p.requires_grad for p in model.parameters()]
    with adapter_off(model):
        torch.testing.assert_close(log_probs(model), base)
    assert [p.requires_grad for p in model.parameters()] == wanted
    assert (log_probs(model) - base).abs().max() > 1e-3


def test_what_is_handed_over_is_the_base_model_with_the_adapter_merged(adapted, tiny_source: ModelSource):
    model, settings = adapted
    served = ScoringModel(tiny_source.load())
    handed = dict(named_weights(model, settings))
    assert list(handed) == [name for name, _ in served.lm.named_parameters()]
    served.lm.load_state_dict(handed, strict=False)
    torch.testing.assert_close(log_probs(served), log_probs(model), atol=1e-5, rtol=0)


def test_an_adapter_starts_as_nothing_and_alike_everywhere(tiny_source: ModelSource):
    pytest.importorskip("peft")
    models = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = ScoringModel(tiny_source.load())
        add_adapter(model.lm, LoraSettings())
        models.append(model)
    assert torch.equal(log_probs(models[0]), log_probs(ScoringModel(tiny_source.load())))
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("target", ["c_attn", "mlp", "input_layernorm", "rotary_emb", "0"])
def test_a_target_that_is_no_linear_layer_is_refused_with_those_that_are(tiny_source: ModelSource, target: str):
    """Before weights are read, too."""
    pytest.importorskip("peft")
    settings = LoraSettings(targets=["q_proj", target])
    known = "down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj"
    refusal = (
        rf"^model\.lora\.targets=.* names {target}, and the linear layers of .* are {known}; name some of these\.$"
    )
    with pytest.raises(SettingError, match=refusal):
        add_adapter(tiny_source.load(), settings)
    with pytest.raises(SettingError, match=refusal):
        check_modules(replace(tiny_source, lora=settings), TokenSampling())


def test_a_router_is_no_linear_layer():
    """That of Phi-3.5-MoE is derived from one, and returns more than a product."""
    pytest.importorskip("peft")
    with pytest.raises(SettingError, match=r"names router, and the linear layers of .* are k_proj, o_proj, q_proj, v"):
        add_adapter(tiny_model(tiny_config("phimoe")), LoraSettings(targets=["router"]))


@pytest.mark.parametrize("targets", [[], "all-linear"])
def test_targets_must_be_a_list_of_names(targets):
    pytest.importorskip("peft")
    with pytest.raises(
        SettingError, match=r"^model\.lora\.targets=.* is no list of names; name linear layers, such as"
    ):
        LoraSettings(targets=targets)


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
def test_an_adapter_of_the_head_or_embedding_is_refused(tiny_source: ModelSource, target: str):
    pytest.importorskip("peft")
    with pytest.raises(SettingError, match=rf"model\.lora\.targets=.*adapter on \S*{target}, which is not supported"):
        add_adapter(tiny_source.load(), LoraSettings(rank=2, targets=["q_proj", target]))


def test_a_folder_with_an_adapter_is_refused(tiny_source: ModelSource, tmp_path):
    tiny_source.config().save_pretrained(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(SettingError, match="holds an adapter"):
        ModelSource(str(tmp_path)).config()
