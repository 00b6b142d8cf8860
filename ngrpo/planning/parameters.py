"""Counts of a rank's parameters: how many, in which dtype, trained or not, and what of them lies on a rank."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import nn

from ngrpo.modeling.policy import ScoringModel


@dataclass(frozen=True)
class ParameterSize:
    """A parameter.

    Attributes:
        rows: length of its first dimension, along which it is sharded.
        numbers: in all.
        itemsize: bytes of a number.
        trained: it gets a gradient.
    """

    rows: int
    numbers: int
    itemsize: int
    trained: bool

    def shard(self, ranks: int) -> int:
        """Returns the numbers that the first of so many ranks holds: FSDP2 shards rows, and pads to equal shards."""
        return -(-self.rows // ranks) * (self.numbers // max(1, self.rows)) if self.rows else 0


@dataclass(frozen=True)
class ModelSize:
    """The parameters of a model: those of its decoder layers, layer by layer, and the others."""

    layers: tuple[tuple[ParameterSize, ...], ...]
    root: tuple[ParameterSize, ...]

    @property
    def all(self) -> tuple[ParameterSize, ...]:
        """Every parameter, tied ones once."""
        return (*(size for layer in self.layers for size in layer), *self.root)

    @property
    def numbers(self) -> int:
        """Of all parameters."""
        return sum(size.numbers for size in self.all)

    @classmethod
    def of(cls, model: ScoringModel) -> "ModelSize":
        """Reads a model's, which may be on the meta device."""
        layers = model.lm.base_model.layers
        inside = {parameter for layer in layers for parameter in layer.parameters()}
        root = [parameter for parameter in model.parameters() if parameter not in inside]
        return cls(tuple(tuple(map(_size, layer.parameters())) for layer in layers), tuple(map(_size, root)))


def _size(parameter: nn.Parameter) -> ParameterSize:
    rows = parameter.shape[0] if parameter.dim() else 1
    return ParameterSize(rows, parameter.numel(), parameter.itemsize, parameter.requires_grad)


def weight_bytes(sizes: Iterable[ParameterSize], ranks: int, itemsize: int | None = None) -> int:
    """Returns the bytes of a rank's shards; ``itemsize`` in place of the parameters' own."""
    return sum(size.shard(ranks) * (itemsize or size.itemsize) for size in sizes)


def gradient_bytes(sizes: Iterable[ParameterSize], ranks: int) -> int:
    """Returns the bytes of a rank's gradients, which have the dtype of their parameters."""
    return sum(size.shard(ranks) * size.itemsize for size in sizes if size.trained)


def moment_bytes(sizes: Iterable[ParameterSize], ranks: int, moments: Callable[[int], int]) -> int:
    """Returns the bytes of a rank's moments; ``moments`` says them for a parameter of so many numbers."""
    return sum(moments(size.shard(ranks)) for size in sizes if size.trained)
