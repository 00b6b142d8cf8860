import json
import random
from functools import cache

import pytest
from safetensors import safe_open
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from ngrpo.data.word_problems.generator import draw
from ngrpo.demo_model.responses import direct, stepped
from ngrpo.modeling.loading import MODEL_PATH


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(MODEL_PATH)


@cache
def rows() -> dict[str, list[float]]:
    """Norm of every row of the input embedding and of the head."""
    with safe_open(MODEL_PATH / "model.safetensors", "pt") as weights:
        names = ("model.embed_tokens.weight", "lm_head.weight")
        return {name: weights.get_tensor(name).norm(dim=-1).tolist() for name in names}


def test_model_is_small_and_loads() -> None:
    model = AutoModelForCausalLM.from_pretrained(MODEL_PATH)
    assert model.config.model_type == "qwen2"
    assert sum(weight.numel() for weight in model.parameters()) <= 5_000_000
    assert (MODEL_PATH / "model.safetensors").stat().st_size <= 8_000_000
    assert model.config.hidden_size // model.config.num_attention_heads in (32, 64)
    assert model.config.max_position_embeddings >= 512


def test_special_tokens_are_single_ids(tokenizer: PreTrainedTokenizerBase) -> None:
    assert tokenizer.bos_token is None
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.pad_token_id != tokenizer.eos_token_id
    for mark in ("<think>", "</think>", "<|im_start|>", "<|im_end|>"):
        assert len(tokenizer(mark).input_ids) == 1
    # The closing mark belongs to the text that a reward reads.
    ids = tokenizer("so.\n</think>\n\\boxed{24}<|im_end|>").input_ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "so.\n</think>\n\\boxed{24}"


def test_configs_agree_with_the_tokenizer(tokenizer: PreTrainedTokenizerBase) -> None:
    config = json.loads((MODEL_PATH / "config.json").read_text())
    assert config["vocab_size"] % 64 == 0
    assert 0 <= config["vocab_size"] - len(tokenizer) < 64
    for settings in (config, GenerationConfig.from_pretrained(MODEL_PATH).to_dict()):
        assert settings["eos_token_id"] == tokenizer.eos_token_id
        assert settings["pad_token_id"] == tokenizer.pad_token_id


@pytest.mark.parametrize("text", ["Anna has 12 plums.", "\\boxed{7}", "\u00e9 \u4e2d\n\n  x", " (12-3=9)."])
def test_any_text_round_trips(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_both_tokenizer_classes_agree(tokenizer: PreTrainedTokenizerBase) -> None:
    # AutoTokenizer makes a Qwen2Tokenizer with rules of its own out of the file.
    plain = PreTrainedTokenizerFast.from_pretrained(MODEL_PATH)
    for text in ("it's 12:30 -- \\frac{1}{2} e\u0301\r\n x", stepped(draw(0, "train")[0], random.Random(0))):
        assert tokenizer(text).input_ids == plain(text).input_ids


def test_chat_template_opens_the_reasoning(tokenizer: PreTrainedTokenizerBase) -> None:
    messages = [{"role": "user", "content": "How many?"}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text == "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n<think>\n"
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert tokenizer.decode(ids) == text


def test_texts_have_the_expected_lengths(tokenizer: PreTrainedTokenizerBase) -> None:
    prompts, long, short = [], [], []
    for key in range(300):
        story, question = draw(key, "held_out")
        messages = [{"role": "user", "content": question}]
        prompts.append(len(tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]))
        long.append(len(tokenizer(stepped(story, random.Random(key))).input_ids) + 1)
        short.append(len(tokenizer(direct(story, random.Random(key))).input_ids) + 1)
    assert 40 <= sum(prompts) / len(prompts) <= 50
    assert max(prompts) <= 64
    assert 30 <= sum(long) / len(long) <= 45
    assert max(long) <= 64
    assert max(short) <= 16


def test_rows_never_seen_are_zero_and_words_are_not(tokenizer: PreTrainedTokenizerBase) -> None:
    norms = rows()["model.embed_tokens.weight"]
    assert max(norms[len(tokenizer) :], default=0.0) == 0.0
    used = {token for key in range(300) for token in tokenizer(draw(key, "train")[1]).input_ids}
    assert min(norms[token] for token in used) > 0.1
    assert len(used) > 80
