"""What a forward and backward pass holds: linear in tokens, and never vocabulary x tokens."""

import torch
from made_rollouts import rollout
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForCausalLM

from ngrpo.exploration.neighbor import NeighborMixing
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.packing import pack
from ngrpo.modeling.policy import ScoringModel
from ngrpo.types.rollouts import Rollout

VOCABULARY, ROWS, RESPONSE = 3000, 4, 12


class Largest(TorchDispatchMode):
    """Keeps the most elements that any tensor made had."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return made


def policy(source: ModelSource) -> ScoringModel:
    config = AutoConfig.from_pretrained(source.location)
    config.vocab_size = VOCABULARY
    model = ScoringModel(AutoModelForCausalLM.from_config(config, attn_implementation="ngrpo"))
    model.head_rows = ROWS
    return model


def sequence() -> Rollout:
    return rollout([5, 6], [7] * RESPONSE, {3: {20: 0.75, 21: 0.25}})


def largest(model: ScoringModel, sequences: int) -> int:
    batch = pack([sequence()] * sequences)
    with Largest() as seen:
        scores = model(batch, 1.0, NeighborMixing(), entropy_gradient=True)
        (scores.log_prob + scores.entropy).sum().backward()
    return seen.elements


def test_nothing_is_as_large_as_vocabulary_times_tokens(tiny_source: ModelSource):
    """The largest tensor is the embedding or a chunk of logits, whatever the number of tokens."""
    model = policy(tiny_source)
    table = model.lm.get_input_embeddings().weight.numel()
    assert [largest(model, n) for n in (2, 8, 32)] == [max(table, ROWS * VOCABULARY)] * 3
    model.head_rows = 10_000
    assert largest(model, 32) == 32 * RESPONSE * VOCABULARY


def saved_bytes(model: ScoringModel, sequences: int) -> int:
    """Of everything that the backward pass needs, parameters left out."""
    storages: dict[int, int] = {}
    ours = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in ours:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    batch = pack([sequence()] * sequences)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        scores = model(batch, 1.0, NeighborMixing())
    assert scores.log_prob.requires_grad
    return sum(storages.values())


def test_what_is_kept_for_the_backward_pass_is_linear_in_tokens(tiny_source: ModelSource):
    model = policy(tiny_source)
    sizes = [saved_bytes(model, n) for n in (8, 16, 24)]
    assert abs((sizes[2] - sizes[1]) - (sizes[1] - sizes[0])) < 0.02 * sizes[0]
    per_token = (sizes[1] - sizes[0]) / (8 * (2 + RESPONSE))
    assert per_token < 4 * VOCABULARY


def test_without_gradient_nothing_is_kept(tiny_source: ModelSource):
    with torch.no_grad():
        scores = policy(tiny_source)(pack([sequence()]), 1.0, NeighborMixing())
    assert scores.log_prob.grad_fn is None
