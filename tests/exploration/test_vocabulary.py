"""The tokenizer's side of a strategy."""

import torch

from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.exploration.runtime.bound import bind
from ngrpo.exploration.token import TokenSampling
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import ModelSource


def test_special_and_added_tokens_are_known(tiny_vocabulary: Vocabulary, tiny_source: ModelSource) -> None:
    tokenizer = tiny_source.tokenizer()
    marks = ["<|pad|>", "<|unk|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    assert tiny_vocabulary.special_ids == set(tokenizer.convert_tokens_to_ids(marks))
    assert tiny_vocabulary.size == len(tokenizer) == 46


def test_end_ids_are_those_of_a_single_added_token(tiny_vocabulary: Vocabulary) -> None:
    assert tiny_vocabulary.end_ids("</think>") == (5,)
    assert tiny_vocabulary.end_ids("</reasoning>") == ()
    assert tiny_vocabulary.end_ids("a") == ()
    assert tiny_vocabulary.end_ids(None) == ()


def test_bind_prepares_tables_and_end_ids(tiny_vocabulary: Vocabulary) -> None:
    embedding = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    mixing = NeighborMixing(k=2)
    made = bind(mixing, embedding, tiny_vocabulary)
    assert made.strategy is mixing
    assert torch.equal(made.tables["neighbors"], mixing.prepare(embedding, tiny_vocabulary)["neighbors"])
    assert made.end_ids == (5,)
    plain = bind(TokenSampling(), embedding, tiny_vocabulary)
    assert (dict(plain.tables), plain.end_ids) == ({}, ())
