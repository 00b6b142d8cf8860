"""Low-rank adapters by peft: trained beside frozen weights, and transferred merged."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ngrpo.errors import SettingError
from ngrpo.utils.optional_packages import require

_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_BASE = ".base_layer"


@dataclass(frozen=True)
class LoraSettings:
    """``W + alpha / rank B A`` in place of a frozen W (Hu et al., arXiv 2106.09685); B starts at zero.

    Attributes:
        rank: columns of B and rows of A.
        alpha: scale.
        targets: names of the linear layers that get an adapter.

    Raises:
        SettingError: a setting is out of range, or peft is not installed.
    """

    rank: int = 16
    alpha: int = 32
    targets: Sequence[str] = _TARGETS

    def __post_init__(self) -> None:
        for name in ("rank", "alpha"):
            if getattr(self, name) < 1:
                raise SettingError(f"model.lora.{name}={getattr(self, name)} is too small; choose 1 or more.")
        if isinstance(self.targets, str) or not self.targets:
            raise SettingError(
                f"model.lora.targets={self.targets} is no list of names; name linear layers, such as [q_proj, v_proj]."
            )
        require("peft", f"model.lora.rank={self.rank}")

    @property
    def scaling(self) -> float:
        """Factor on B A."""
        return self.alpha / self.rank


def add_adapter(lm: PreTrainedModel, settings: LoraSettings) -> None:
    """Puts adapters into a model and freezes everything else.

    Adapters are float32 whatever the model's dtype, and the same on every rank.

    Raises:
        SettingError: the model has no linear layer of a target's name, or it is the embedding or the head.
    """
    from peft import LoraConfig, inject_adapter_in_model

    targets = list(settings.targets)
    check_targets(lm, settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inject_adapter_in_model(LoraConfig(r=settings.rank, lora_alpha=settings.alpha, target_modules=targets), lm)
    for name, parameter in lm.named_parameters():
        adapter = ".lora_" in name
        parameter.requires_grad_(adapter)
        if adapter:
            parameter.data = parameter.data.float()


def check_targets(lm: PreTrainedModel, settings: LoraSettings) -> None:
    """Refuses names of what is no linear layer of the decoder.

    Args:
        lm: without adapters; its weights are not read.
        settings: of the adapters.

    Raises:
        SettingError: see `add_adapter`.
    """
    targets = list(settings.targets)
    _check_linear(lm, targets)
    _check_body(lm, targets)


def _check_linear(lm: PreTrainedModel, targets: Sequence[str]) -> None:
    """Every module of a target's name must compute what `nn.Linear` does: `merged` adds to matrices alone."""
    named: dict[str, list[nn.Module]] = {}
    for name, module in lm.named_modules():
        named.setdefault(name.rpartition(".")[2], []).append(module)
    outside = _outside(lm)
    linear = [
        name
        for name, modules in named.items()
        if all(type(module).forward is nn.Linear.forward and module not in outside for module in modules)
    ]
    others = [t for t in targets if t not in linear and not any(module in outside for module in named.get(t, ()))]
    if others:
        raise SettingError(
            f"model.lora.targets={list(targets)} names {', '.join(others)}, and the linear layers of the model's "
            f"decoder are {', '.join(sorted(linear))}; name some of these."
        )


def _check_body(lm: PreTrainedModel, targets: Sequence[str]) -> None:
    """The trainer multiplies with the weights of embedding and head themselves: their adapters would be lost."""
    outside = _outside(lm)
    for name, module in lm.named_modules():
        if name.rpartition(".")[2] in targets and module in outside:
            raise SettingError(
                f"model.lora.targets={list(targets)} puts an adapter on {name}, which is not supported; name linear "
                "layers of the decoder."
            )


def _outside(lm: PreTrainedModel) -> list[nn.Module]:
    return [lm.get_input_embeddings(), lm.get_output_embeddings()]


@contextmanager
def adapter_off(model: nn.Module) -> Iterator[None]:
    """Computes what the frozen weights alone compute."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    # Not enable_adapters, which also changes who requires a gradient.
    try:
        for layer in layers:
            layer._disable_adapters = True
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


def merged(
    weights: Mapping[str, Tensor], settings: LoraSettings | None, whole: Callable[[Tensor], Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """Yields weights by the names of a model without adapters, adapters added in float32.

    Args:
        weights: by name, as a model holds them.
        settings: None for a model without adapters.
        whole: gathers a tensor (a collective when sharded); called in the same order on every rank.
    """
    for name, tensor in weights.items():
        if settings is None or ".lora_" not in name:
            weight = whole(tensor)
            layer = name.removesuffix(f"{_BASE}.weight")
            if settings is not None and layer != name:
                down, up = (whole(weights[f"{layer}.lora_{part}.default.weight"]).float() for part in "AB")
                weight = (weight.float() + settings.scaling * (up @ down)).to(weight.dtype)
            yield name.replace(f"{_BASE}.", "."), weight
