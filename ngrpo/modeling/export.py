"""The policy as a Hugging Face folder."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from transformers import AutoModelForCausalLM

from ngrpo.checkpoints import STATE
from ngrpo.modeling.loading import DTYPES, ModelSource

_PREFIX = "policy.lm."


@torch.no_grad()
def export(source: ModelSource, tokenizer: Any, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Writes config, generation config, tokenizer and weights: ``from_pretrained(folder)`` gives the policy.

    Args:
        source: what the policy was loaded from; gives the architecture.
        tokenizer: written beside it.
        weights: whole tensors by transformers name; tied weights once or twice.
        folder: made if it does not exist.

    Raises:
        ValueError: the weights do not fit the model.
    """
    model = AutoModelForCausalLM.from_pretrained(source.location, dtype=DTYPES[source.dtype])
    parameters = dict(model.named_parameters())
    if not parameters.keys() <= weights.keys() <= model.state_dict().keys():
        raise ValueError(f"weights do not fit {source.path}: {sorted(parameters.keys() ^ weights.keys())}")
    for name, parameter in parameters.items():
        parameter.copy_(weights[name])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def checkpoint_weights(folder: Path) -> dict[str, Tensor]:
    """Returns the policy's whole weights from a checkpoint of one process or, sharded, of several.

    Args:
        folder: a complete checkpoint (`ngrpo.checkpoints`).
    """
    state = folder / STATE
    with tempfile.TemporaryDirectory() as scratch:
        if state.is_dir():
            whole = Path(scratch) / "whole.ckpt"
            dcp_to_torch_save(state, whole)
            state = whole
        tensors = torch.load(state, map_location="cpu", weights_only=True)["state_dict"]
    return {name.removeprefix(_PREFIX): t for name, t in tensors.items() if name.startswith(_PREFIX)}
