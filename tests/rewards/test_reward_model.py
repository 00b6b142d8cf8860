"""The reward model against single forward passes: batches, templates, scales, and what is refused."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_tokenizer import CHAT_TEMPLATE, tiny_tokenizer
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
)

from ngrpo.errors import SettingError
from ngrpo.rewards.reward_model import RewardModel

CHAT = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "what is 2"}]
PROMPTS = ["what is 2", CHAT, "what is 5 plus 7"]
COMPLETIONS = ["2", "box 2 plus 0 please", "12"]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    def made(labels: int = 1, template: str | None = CHAT_TEMPLATE) -> Path:
        folder = tmp_path_factory.mktemp("classifier")
        tokenizer = tiny_tokenizer(template)
        config = LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_labels=labels, pad_token_id=None,
        )  # fmt: skip
        torch.manual_seed(labels)
        LlamaForSequenceClassification(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return made


def alone(folder: Path, text: str) -> torch.Tensor:
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    ids = tiny_tokenizer()(text, add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([ids])).logits[0]
    return logits


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_a_batch_gives_what_each_chat_gives_alone(classifier: Callable[..., Path], batch_size: int) -> None:
    folder = classifier()
    rewards = RewardModel(str(folder), batch_size=batch_size, device="cpu")(COMPLETIONS, PROMPTS)
    chats = [
        "<bos> <user> what is 2 <end> <assistant> 2 <end>",
        "<bos> <system> be brief <end> <user> what is 2 <end> <assistant> box 2 plus 0 please <end>",
        "<bos> <user> what is 5 plus 7 <end> <assistant> 12 <end>",
    ]
    assert rewards == pytest.approx([float(alone(folder, chat)) for chat in chats], abs=1e-5)
    assert len({round(reward, 4) for reward in rewards}) == 3


def test_scales_and_labels(classifier: Callable[..., Path]) -> None:
    folder = classifier(3)
    outputs = alone(folder, "<bos> <user> what is 2 <end> <assistant> 2 <end>")

    def reward(**settings: Any) -> float:
        (value,) = RewardModel(str(folder), device="cpu", **settings)(["2"], ["what is 2"])
        return value

    assert reward(label=2) == pytest.approx(float(outputs[2]), abs=1e-5)
    assert reward(label=1, scale="sigmoid") == pytest.approx(float(outputs[1].sigmoid()), abs=1e-5)
    assert reward(label=1, scale="softmax") == pytest.approx(float(outputs.softmax(-1)[1]), abs=1e-5)
    assert RewardModel(str(folder), scale="sigmoid").bounds == (0.0, 1.0)
    assert RewardModel(str(folder)).bounds is None


def test_without_a_template_the_texts_are_a_pair(classifier: Callable[..., Path]) -> None:
    folder = classifier(1, None)
    (reward,) = RewardModel(str(folder), device="cpu")(["2"], ["what is 2"])
    tokenizer = tiny_tokenizer(None)
    ids = tokenizer("what is 2", "2")["input_ids"]
    assert reward == pytest.approx(float(alone(folder, " ".join(tokenizer.convert_ids_to_tokens(ids)))), abs=1e-5)


def test_the_last_tokens_of_a_long_chat_are_scored(classifier: Callable[..., Path]) -> None:
    folder = classifier()
    (reward,) = RewardModel(str(folder), max_tokens=3, device="cpu")(["2"], ["what is 2"])
    assert reward == pytest.approx(float(alone(folder, "<assistant> 2 <end>")), abs=1e-5)


def test_what_cannot_work_is_refused(classifier: Callable[..., Path], tmp_path: Path) -> None:
    for settings, sentence in (
        ({"batch_size": 0}, r"reward\.batch_size=0 scores nothing"),
        ({"max_tokens": 0}, r"reward\.max_tokens=0 scores nothing"),
        ({"scale": "log"}, r"reward\.scale=log is no scale"),
    ):
        with pytest.raises(SettingError, match=sentence):
            RewardModel("x", **settings)  # type: ignore[arg-type]
    (tmp_path / "empty").mkdir()
    with pytest.raises(SettingError, match=r"reward\.path=.*empty cannot be loaded as a sequence classifier"):
        RewardModel(str(tmp_path / "empty"))(["2"], ["what is 2"])
    with pytest.raises(
        SettingError, match=r"has 3 outputs, .*; choose one of 0 \(LABEL_0\), 1 \(LABEL_1\), 2 \(LABEL_2\)"
    ):
        RewardModel(str(classifier(3)), device="cpu")(["2"], ["what is 2"])
    with pytest.raises(SettingError, match=r"reward\.device=cuda:77 cannot be used"):
        RewardModel(str(classifier()), device="cuda:77")(["2"], ["what is 2"])
    with pytest.raises(SettingError, match=r"reward\.dtype=float99 is unknown"):
        RewardModel("x", dtype="float99")
    with pytest.raises(SettingError, match=r"reward\.label=1 is none of the 1 outputs of reward\.path="):
        RewardModel(str(classifier()), label=1)(["2"], ["what is 2"])


def test_an_encoder_keeps_its_first_token_and_its_positions(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(None)
    tokenizer.pad_token, tokenizer.model_max_length = "<end>", 12
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=12, num_labels=1,
    )  # fmt: skip
    torch.manual_seed(0)
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    long = " ".join(["what is 2"] * 20)
    model = RewardModel(str(tmp_path), device="cpu")
    longest, short = model([long, "2"], [long, "what is 2"])
    assert math.isfinite(longest)
    assert short == pytest.approx(
        RewardModel(str(tmp_path), batch_size=1, device="cpu")(["2"], ["what is 2"])[0], abs=1e-5
    )
