"""The memory of one pass, found by making it on the meta device."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig

from ngrpo.modeling.layers import prepare_layers
from ngrpo.modeling.lora import LoraSettings
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.precision import computing_in
from ngrpo.planning.allocation_tracker import AllocationTracker
from ngrpo.planning.compiled_layer import kept_by_compiled_layer
from ngrpo.planning.meta_model import meta_model
from ngrpo.planning.remembered import by_repr
from ngrpo.planning.stand_ins import AllocatedAttention, AllocatedHead


@dataclass(frozen=True, kw_only=True)
class PassSettings:
    """What the memory of a pass depends on.

    Attributes:
        config: the architecture of what one rank holds (`ngrpo.planning.meta_model.rank_config`).
        dtype: of the parameters.
        mixed_in: dtype to compute in, on copies of the parameters; None computes in theirs.
        checkpointing: a key of `ngrpo.modeling.layers.CHECKPOINTING`.
        compile: the layers are compiled.
        lora: None trains every parameter.
        tokens: of the pass, prompts included.
        scored: of them the response tokens, whose logits are made.
        head_rows: most tokens whose logits are held at a time.
        accumulating: gradients of an earlier pass are there already.
        trust_remote_code: run the code that comes with the model.
    """

    config: PretrainedConfig
    dtype: torch.dtype
    mixed_in: torch.dtype | None
    checkpointing: str
    compile: bool
    lora: LoraSettings | None
    tokens: int
    scored: int
    head_rows: int
    accumulating: bool
    trust_remote_code: bool = False


@dataclass(frozen=True)
class PassMemory:
    """Most bytes that a pass holds beyond the parameters; its gradients are among them.

    Attributes:
        head: up to the end of the head's backward pass, when every layer's activations are there.
        body: after it, in the backward pass of the layers.
        kept_per_layer: what a layer keeps for its backward pass.
    """

    head: int
    body: int
    kept_per_layer: int

    @property
    def peak(self) -> int:
        """The larger of both."""
        return max(self.head, self.body)


@by_repr
def training_pass(settings: PassSettings) -> PassMemory:
    """Returns the memory of a forward and a backward pass.

    Layers that are compiled keep less. What they keep is counted by a layer compiled by itself, since a tracker sees
    inside no compiled code; all else is taken to be as it is without.
    """
    memory = _traced(settings)
    if not settings.compile:
        return memory
    kept = kept_by_compiled_layer(settings.config, settings.checkpointing, settings.tokens, _dtype(settings))
    if settings.checkpointing == "full":  # layers keep their input alone, and are made again one at a time
        uncompiled = _traced(replace(settings, checkpointing="off")).kept_per_layer
        return replace(memory, body=memory.body - max(0, uncompiled - kept))
    saved = settings.config.num_hidden_layers * max(0, memory.kept_per_layer - kept)
    return PassMemory(memory.head - saved, memory.body - saved, min(memory.kept_per_layer, kept))


@by_repr
@torch.no_grad()
def scoring_pass(settings: PassSettings) -> int:
    """Returns most bytes that a pass without gradients holds beyond the parameters."""
    model = _model(settings)
    with AllocationTracker(_there(model)) as tracker, _precision(model, settings):
        _forward(model, settings)
    return tracker.peak


def _traced(settings: PassSettings) -> PassMemory:
    model = _model(settings)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    prepare_layers(model.lm.base_model.layers, settings.checkpointing, compiled=False)
    with AllocationTracker(_there(model)) as tracker, _precision(model, settings):
        if settings.accumulating:
            for parameter in trained:
                parameter.grad = torch.empty_like(parameter)
        with _levels(model.lm.base_model.layers, tracker) as levels:
            scores = _forward(model, settings)
        peaks: list[int] = []
        _at_gradient(scores.hidden, lambda: peaks.append(tracker.restart_peak()))
        scores.log_prob.sum().backward()  # type: ignore[no-untyped-call]
    return PassMemory(head=peaks[0], body=tracker.peak, kept_per_layer=_step(levels))


@dataclass(frozen=True)
class _Scores:
    hidden: Tensor
    log_prob: Tensor


def _model(settings: PassSettings) -> ScoringModel:
    return meta_model(settings.config, settings.dtype, settings.lora, settings.trust_remote_code)


def _dtype(settings: PassSettings) -> torch.dtype:
    return settings.mixed_in or settings.dtype


def _precision(model: ScoringModel, settings: PassSettings) -> Any:
    return nullcontext() if settings.mixed_in is None else computing_in(model, settings.mixed_in)


def _there(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _forward(model: ScoringModel, settings: PassSettings) -> _Scores:
    numbers = torch.zeros(settings.tokens, dtype=torch.int64, device="meta")
    rows = torch.zeros(settings.scored, dtype=torch.int64, device="meta")
    inputs = model.lm.get_input_embeddings()(numbers)
    states = model.lm.base_model(
        inputs_embeds=torch.stack([inputs]), position_ids=numbers[None], use_cache=False, plan=AllocatedAttention()
    ).last_hidden_state[0]
    hidden = states[rows]
    log_prob: Tensor = AllocatedHead.apply(hidden, model.lm.lm_head.weight, settings.head_rows)  # type: ignore[no-untyped-call]
    return _Scores(hidden, log_prob)


def _at_gradient(tensor: Tensor, then: Callable[[], Any]) -> None:
    tensor.register_hook(lambda _: then() and None)  # type: ignore[no-untyped-call]


@contextmanager
def _levels(layers: nn.ModuleList, tracker: AllocationTracker) -> Iterator[list[int]]:
    """Yields the list that gets the bytes alive at the end of each layer's forward pass."""
    levels: list[int] = []
    hooks = [layer.register_forward_hook(lambda *_: levels.append(tracker.live)) for layer in layers]
    yield levels
    for hook in hooks:
        hook.remove()


def _step(levels: list[int]) -> int:
    return (levels[-1] - levels[0]) // (len(levels) - 1) if len(levels) > 1 else levels[0]
