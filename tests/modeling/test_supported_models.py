"""Every supported model type against its own forward; what is refused, and that nothing else is let through."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from made_models import EVERY_SUPPORTED, SINCE, SPECIAL, VOCABULARY, has_type, tiny_config, tiny_model
from made_rollouts import rollout
from places import ROOT
from torch import Tensor
from transformers import CONFIG_MAPPING, PretrainedConfig, PreTrainedModel

from ngrpo.entrypoints.input_validation import check_context
from ngrpo.errors import SettingError
from ngrpo.exploration.token import TokenSampling
from ngrpo.modeling import head
from ngrpo.modeling.attention import IMPLEMENTATION
from ngrpo.modeling.cost import PassCost
from ngrpo.modeling.head import output_logits
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.supported_models import SUPPORTED, check_supported
from ngrpo.rollout.torch_engine.kv_cache import DecodeAttention, PrefillAttention, SlotCache

PROMPTS, LENGTHS = (3, 4), (17, 9)


def sequences() -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(3, VOCABULARY, (n,), generator=generator).tolist() for n in LENGTHS]


def own_log_probs(model: PreTrainedModel) -> list[Tensor]:
    """Of every next token, by the model's own forward, one sequence at a time; [T, V] each."""
    with torch.no_grad():
        return [model(input_ids=torch.tensor([s]), use_cache=False).logits[0].log_softmax(-1) for s in sequences()]


def of_responses(log_probs: list[Tensor]) -> Tensor:
    parts = [
        table[range(prompt - 1, len(tokens) - 1), tokens[prompt:]]
        for table, tokens, prompt in zip(log_probs, sequences(), PROMPTS, strict=True)
    ]
    return torch.cat(parts)


def packed() -> Any:
    return pack([rollout(s[:n], s[n:]) for s, n in zip(sequences(), PROMPTS, strict=True)])


@torch.no_grad()
def decoded(model: PreTrainedModel, steps: int) -> list[Tensor]:
    """The engine's passes: two prompts packed, then both sequences a token at a time; log-probs [steps + 1, V] each."""
    tokens, embed = sequences(), model.get_input_embeddings()
    cache = SlotCache(model.config, 3, max(LENGTHS), like=embed.weight)
    prompt = torch.tensor([t for s, n in zip(tokens, PROMPTS, strict=True) for t in s[:n]])
    positions = torch.cat([torch.arange(n) for n in PROMPTS])
    plan: Any = PrefillAttention(cache, list(PROMPTS), [torch.tensor([0]), torch.tensor([1])])
    hidden = model.base_model(
        inputs_embeds=embed(prompt)[None], position_ids=positions[None], use_cache=False, plan=plan
    ).last_hidden_state[0]
    found = [output_logits(model, hidden[torch.tensor(PROMPTS).cumsum(0) - 1])]
    for step in range(steps):
        at = torch.tensor(PROMPTS) + step
        inputs = embed(torch.tensor([s[i] for s, i in zip(tokens, at.tolist(), strict=True)]))[:, None]
        plan = DecodeAttention(cache, at, int(at.max()) + 1)
        hidden = model.base_model(inputs_embeds=inputs, position_ids=at[:, None], use_cache=False, plan=plan)
        found.append(output_logits(model, hidden.last_hidden_state[:, 0]))
    return list(torch.stack(found, dim=1).log_softmax(-1))


@pytest.mark.parametrize("kind", EVERY_SUPPORTED)
def test_trainer_and_engine_compute_what_the_model_computes(kind: str):
    """Dropout and router noise of every kind are on in the configuration, and the modules in training mode."""
    config = tiny_config(kind)
    noisy = [name for name, value in config.to_dict().items() if ("drop" in name or "jitter" in name) and value == 0]
    config.update(dict.fromkeys(noisy, 0.5))
    check_supported(config)
    assert PassCost.of(config)(10) > 0
    own = tiny_model(config)
    expected = own_log_probs(own)
    assert float(of_responses(expected).std()) > 0.3  # so that a wrong one would show
    model = ScoringModel(tiny_model(config, IMPLEMENTATION)).train()
    assert len(model.lm.base_model.layers) == config.num_hidden_layers
    with torch.no_grad():
        scores = [model(packed(), 1.0, TokenSampling()).log_prob for _ in range(2)]
    assert torch.equal(*scores)
    torch.testing.assert_close(scores[0], of_responses(expected), atol=1e-4, rtol=0)
    for found, table, prompt in zip(decoded(model.lm, 5), expected, PROMPTS, strict=True):
        torch.testing.assert_close(found, table[prompt - 1 : prompt + 5], atol=1e-4, rtol=0)


ORIGINAL = {"original_max_position_embeddings": 16}
ROPES = {
    "linear": {"factor": 4.0},
    "llama3": ORIGINAL | {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": ORIGINAL | {"factor": 4.0},
}


@pytest.mark.parametrize("rope_type", ROPES)
def test_rotary_positions_are_those_of_the_model(rope_type: str):
    rope = ROPES[rope_type] | {"rope_type": rope_type, "rope_theta": 1e4}
    assert_scores_are_those_of_the_model(tiny_config("llama", rope_parameters=rope))


def assert_scores_are_those_of_the_model(config: PretrainedConfig) -> None:
    check_supported(config)
    expected = own_log_probs(tiny_model(config))
    with torch.no_grad():
        scores = ScoringModel(tiny_model(config, IMPLEMENTATION))(packed(), 1.0, TokenSampling()).log_prob
    torch.testing.assert_close(scores, of_responses(expected), atol=1e-4, rtol=0)


def test_frequencies_that_switch_inside_a_rollout_are_refused():
    """Up to where they switch they are those of the model."""
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.5] * 4, "long_factor": [4.0] * 4}
    config = tiny_config("phi3", rope_parameters=rope, original_max_position_embeddings=64)
    assert_scores_are_those_of_the_model(config)
    check_context(config, 32, 32)
    with pytest.raises(SettingError, match=r"data\.max_prompt_tokens=32 \+ rollout\.max_new_tokens=33 .* 64 positions"):
        check_context(config, 32, 33)


def refused(folder: Path, settings: dict[str, Any]) -> str:
    folder.joinpath("config.json").write_text(json.dumps(settings))
    with pytest.raises(SettingError) as caught:
        ModelSource(path=str(folder)).config()
    message = str(caught.value)
    assert message.startswith(f"model.path={folder} ")
    assert message.endswith(".")
    assert "\n" not in message
    return message


@pytest.mark.parametrize(("kind", "words"), [
    ("bart", "encoder and decoder"), ("bert", "type bert"), ("biogpt", "positions"), ("bloom", "ALiBi"),
    ("codegen", "type codegen"), ("ctrl", "type ctrl"), ("dbrx", "type dbrx"), ("deepseek_v2", "multi-head latent"),
    ("deepseek_v3", "multi-head latent"), ("diffllama", "differential"), ("doge", "type doge"), ("falcon", "attention"),
    ("falcon_mamba", "recurrent"), ("gemma3", "vision"), ("gpt2", "positions"), ("gpt_bigcode", "positions"),
    ("gpt_neox", "type gpt_neox"), ("gpt_oss", "sinks"), ("gptj", "type gptj"), ("jamba", "recurrent"),
    ("llama4", "chunked"), ("mamba", "recurrent"), ("mpt", "ALiBi"), ("openai-gpt", "type openai-gpt"),
    ("opt", "positions"), ("persimmon", "type persimmon"), ("qwen2_vl", "vision"), ("qwen3_next", "linear attention"),
    ("recurrent_gemma", "type recurrent_gemma"), ("roberta", "type roberta"), ("rwkv", "recurrent"),
    ("stablelm", "type stablelm"), ("t5", "encoder and decoder"), ("vit", "type vit"),
    ("whisper", "encoder and decoder"),
    ("xglm", "positions"), ("zamba", "recurrent"),
])  # fmt: skip
def test_other_types_are_refused_by_name(tmp_path: Path, kind: str, words: str):
    message = refused(tmp_path, {"model_type": kind})
    assert f"is of type {kind}" in message
    assert words in message
    assert "llama, qwen2, qwen3" in message


@pytest.mark.parametrize("kind", EVERY_SUPPORTED)
def test_a_supported_type_that_is_quantised_is_refused(tmp_path: Path, kind: str):
    settings = tiny_config(kind).to_dict() | {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    assert "is quantised (gptq)" in refused(tmp_path, settings)


@pytest.mark.parametrize(("kind", "changes", "words"), [
    ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}, "sliding_attention"),
    ("mistral", {"sliding_window": 8}, "sliding_attention"),
    ("gemma2", {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}, "sliding_attention"),
    ("mistral", {"sliding_window": 0}, "sliding_attention"),
    ("gemma2", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping=50.0"),
    ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention=True"),
    ("llama", {"is_causal": False}, "is_causal=False"),
    ("llama", {"hidden_act": "nope"}, "hidden_act='nope'"),
    ("gemma2", {"hidden_activation": "nope"}, "hidden_activation='nope'"),
    ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "rope_type=dynamic"),
])  # fmt: skip
def test_settings_that_would_be_left_out_are_refused(kind: str, changes: dict[str, Any], words: str):
    with pytest.raises(SettingError, match=words):
        check_supported(tiny_config(kind, **changes))


def test_a_window_that_hides_nothing_is_supported():
    check_supported(tiny_config("mistral", sliding_window=128))


@pytest.mark.parametrize("kind", EVERY_SUPPORTED)
def test_a_window_is_not_overlooked_where_full_layers_are_listed(kind: str):
    """Mistral's own forward, and that of others, takes the window and knows no list."""
    windowed = {"sliding_window": 4, "use_sliding_window": True, "layer_types": ["full_attention"] * 2}
    config, full = tiny_config(kind, **windowed), tiny_config(kind)
    if torch.equal(of_responses(own_log_probs(tiny_model(config))), of_responses(own_log_probs(tiny_model(full)))):
        assert_scores_are_those_of_the_model(full)
        return
    with pytest.raises(SettingError, match="sliding_attention"):
        check_supported(config)


def test_every_function_after_the_head_belongs_to_a_supported_type():
    assert head._BY_TYPE.keys() <= SUPPORTED
    assert set(SPECIAL) <= SUPPORTED
    assert all(issubclass(CONFIG_MAPPING[kind], PretrainedConfig) for kind in SUPPORTED if has_type(kind))


def test_the_documentation_names_the_supported_types():
    text = ROOT.joinpath("docs/models.md").read_text().split("## ")[1]
    paragraphs = [set(re.split(r",\s*", paragraph.strip().rstrip("."))) for paragraph in text.split("\n\n")]
    assert SUPPORTED in paragraphs
    for kind, (major, minor) in SINCE.items():
        assert f"{kind} needs transformers {major}.{minor}" in " ".join(text.split())
    (core, train) = re.findall(r'"transformers>=([\d.]+)', ROOT.joinpath("pyproject.toml").read_text())
    text = " ".join(text.split())
    assert f"all others are in {train}, the oldest that the commands take. What needs no extra" in text
    assert f"takes {core}." in text
