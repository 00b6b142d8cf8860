"""The memory that FSDP2 takes for a sharded model beyond its shards, while passes are made."""

from ngrpo.planning.parameters import ModelSize, weight_bytes

_SUMMED_IN = 4
"""Bytes of a number in which gradients are summed over the ranks: float32."""


def gathered_weights(size: ModelSize, itemsize: int, gather_once: bool) -> int:
    """Returns the bytes of gathered weights: embedding, norm and head all the time, and two layers, or all of them.

    The layer after the one that runs is gathered meanwhile.

    Args:
        size: of the model that a rank would hold unsharded.
        itemsize: bytes of a number in the dtype of the computation.
        gather_once: see `ngrpo.modeling.gathering`.
    """
    layers = [weight_bytes(layer, 1, itemsize) for layer in size.layers]
    return weight_bytes(size.root, 1, itemsize) + (sum(layers) if gather_once else 2 * max(layers, default=0))


def unsharded_gradients(size: ModelSize, itemsize: int, ranks: int, gather_once: bool) -> int:
    """Returns the bytes of gradients beyond the shards of them.

    As a rule those of a layer, in the dtype of the computation and once more in float32 for the sum over the ranks, and
    the head's, which wait for the embedding's. With ``gather_once`` all of them in float32.
    """
    if gather_once:
        whole = sum(parameter.numbers * _SUMMED_IN for parameter in size.all if parameter.trained)
        return whole - sum(parameter.shard(ranks) * _SUMMED_IN for parameter in size.all if parameter.trained)
    layer = max((sum(one.numbers for one in layer if one.trained) for layer in size.layers), default=0)
    root = sum(one.numbers for one in size.root if one.trained)
    return layer * (itemsize + _SUMMED_IN) + root * itemsize
