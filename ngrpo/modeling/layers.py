"""Decoder layers made cheaper: compiled, and with activations recomputed in the backward pass."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch import nn
from torch.fx.experimental import _config as shapes
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

Forward = Callable[..., Any]

_MATRIX_PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"}


def keep_products(context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """The policy of selective checkpointing: keeps what matrix products and attention made."""
    name = operator.name().split(".")[0]
    if name in _MATRIX_PRODUCTS or "attention" in name or "attn" in name:
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


def _full(forward: Forward) -> Forward:
    return partial(checkpoint, forward, use_reentrant=False, preserve_rng_state=False)  # nothing is random


def _selective(forward: Forward) -> Forward:
    contexts = partial(create_selective_checkpoint_contexts, keep_products)
    return partial(checkpoint, forward, use_reentrant=False, preserve_rng_state=False, context_fn=contexts)


CHECKPOINTING: dict[str, Callable[[Forward], Forward]] = {
    "off": lambda forward: forward,
    "selective": _selective,
    "full": _full,
}
"""How a layer's activations reach the backward pass: all kept; products and attention kept, the rest made again;
only the layer's input kept."""


_MOST_GRAPHS = 16


def _with_few_graphs(forward: Forward) -> Forward:
    """Has the compiler assume of a forward what holds for every microbatch.

    Numbers of a layer, such as the epsilon of its norms, are constants. The compiler would make them CPU tensors, since
    ``dynamic=True`` lets every number change. Selective checkpointing keeps them for the backward pass, and on a GPU
    the C++ compiler was started for that: a minute.

    Sizes that are equal in one microbatch are not in all, as the compiler would take for granted: a graph more for each
    pair of them, until it gave up and compiled nothing.

    The models of a run have one code. A policy, also without its adapter, and a critic make six graphs, and twice as
    many where some microbatches share prompts and others do not; the compiler would give up at eight.
    """
    distinct_sizes = partial(shapes.patch, use_duck_shape=False)  # type: ignore[attr-defined]

    @wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._dynamo.config.patch(specialize_float=True, recompile_limit=_MOST_GRAPHS), distinct_sizes():
            return forward(*args, **kwargs)

    return run


def prepare_layers(layers: nn.ModuleList, checkpointing: str, compiled: bool, backend: str = "inductor") -> None:
    """Changes how the layers run, not what they compute; parameters keep their names.

    The forward of each layer is wrapped, not its call: the hooks of FSDP2 stay outside the compiled part and are not
    run again by a recomputation. Layers have one code, and one graph each for training and for scoring: lengths are
    dynamic and the attention reads no layer number. Microbatches that share prompts have as many again.

    Args:
        layers: decoder layers of a transformers model.
        checkpointing: a key of `CHECKPOINTING`.
        compiled: with torch.compile.
        backend: of torch.compile.
    """
    compiler = partial(torch.compile, dynamic=True, backend=backend)
    changes: list[Callable[[Forward], Forward]] = [compiler, _with_few_graphs] if compiled else []
    # The compiler must see what is made again in part. A whole layer is made again by calling it, compiled, once more:
    # the graphs are then those of a layer without checkpointing, such as the reference's.
    changes.insert(0 if checkpointing == "selective" else len(changes), CHECKPOINTING[checkpointing])
    for layer in layers:
        for change in changes:
            layer.forward = change(layer.forward)


class CompiledLayers:
    """Layers that run compiled for a while, and as they are otherwise.

    Args:
        layers: decoder layers of a transformers model.
    """

    def __init__(self, layers: nn.ModuleList) -> None:
        self._layers = [(layer, layer.forward, torch.compile(layer.forward, dynamic=True)) for layer in layers]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Has them run compiled inside."""
        for layer, _, fast in self._layers:
            layer.forward = fast
        try:
            yield
        finally:
            for layer, plain, _ in self._layers:
                layer.forward = plain
