"""Tokenizers of the kinds that models have, trained here on a few sentences, with the marks of a chat."""

import json

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
MARKS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
_TEXT = ["What is the sum of two numbers, 17 and 25?", "user assistant system <think> im_start im_end | < >"] * 3


def byte_level() -> PreTrainedTokenizerFast:
    """As of GPT-2, Llama 3 and Qwen; the think marks are added tokens that are not special, as in Qwen3."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(_TEXT, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    return _finished(backend)


def metaspace() -> PreTrainedTokenizerFast:
    """As of Llama 2 and Gemma: BPE with byte fallback, and a mark for spaces put before the first word only."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    backend.train_from_iterator(_TEXT, trainers.BpeTrainer(vocab_size=600, special_tokens=special))
    described = json.loads(backend.to_str())  # where models have them, the bytes are no added tokens
    described["added_tokens"] = [token for token in described["added_tokens"] if "0x" not in token["content"]]
    backend = Tokenizer.from_str(json.dumps(described))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return _finished(backend, bos_token="<s>", unk_token="<unk>")


def merging() -> PreTrainedTokenizerFast:
    """As converted from SentencePiece at times: BPE whose merges make the marks of text, too."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "isolated")
    backend.decoder = decoders.Fuse()
    marks = " ".join([*MARKS, "<think>", "</think>"])
    alphabet = sorted(set("\n".join([marks, CHAT_TEMPLATE, *_TEXT, "It is 4. and 3?abcdefghijklmnopqrstuvwxyz"])))
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<unk>"], initial_alphabet=alphabet)
    backend.train_from_iterator([marks] * 20, trainer)
    return _finished(backend, unk_token="<unk>")


def unigram() -> PreTrainedTokenizerFast:
    """As of T5 and XLM: pieces with scores, whose list holds the marks too."""
    backend = Tokenizer(models.Unigram())
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", *MARKS]
    trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=special, unk_token="<unk>")
    backend.train_from_iterator(_TEXT, trainer)
    return _finished(backend, unk_token="<unk>")


def _finished(backend: Tokenizer, **roles: str) -> PreTrainedTokenizerFast:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>", **roles)
    tokenizer.add_special_tokens({"additional_special_tokens": MARKS[:2]})
    tokenizer.add_tokens(
        [AddedToken(mark, special=False, normalized=False) for mark in ("<think>", "</think>", "    ")]
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
