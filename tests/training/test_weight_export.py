"""Whole weights of a policy for the engine."""

import torch
from transformers import AutoModelForCausalLM

from ngrpo.exploration.hrpo import HybridReasoning
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.policy import ScoringModel
from ngrpo.training.weight_export import WeightExport


def test_weights_have_the_names_of_transformers(tiny_source: ModelSource):
    learned = HybridReasoning().initial_parameters(32)
    exported = WeightExport(ScoringModel(tiny_source.load(), learned), lora=None)
    stock = AutoModelForCausalLM.from_pretrained(tiny_source.path)
    weights = dict(exported.named_weights())
    assert weights.keys() == dict(stock.named_parameters()).keys()
    assert all(torch.equal(weights[name], value) for name, value in stock.named_parameters())
    assert torch.equal(exported.embedding(), stock.get_input_embeddings().weight)
    assert exported.learned_exploration().keys() == learned.keys()
    assert all(torch.equal(value, learned[name]) for name, value in exported.learned_exploration().items())
    assert not any(value.requires_grad for value in [*weights.values(), exported.embedding()])


def test_later_weights_are_exported(tiny_source: ModelSource):
    model = ScoringModel(tiny_source.load())
    exported = WeightExport(model, lora=None)
    with torch.no_grad():
        model.lm.get_input_embeddings().weight.zero_()
    assert not exported.embedding().any()
