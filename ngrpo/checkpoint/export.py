"""The policy as a Hugging Face folder."""

import pickle
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from transformers import AutoModelForCausalLM

from ngrpo.checkpoint.folders import STATE
from ngrpo.errors import SettingError
from ngrpo.modeling.attention import IMPLEMENTATION
from ngrpo.modeling.learned import save_learned
from ngrpo.modeling.loading import DTYPES, ModelSource
from ngrpo.modeling.lora import LoraSettings, merged
from ngrpo.utils.atomic_write import apply_umask

_MODEL, _LEARNED = "policy.lm.", "policy.learned."


@dataclass(frozen=True)
class Weights:
    """Whole tensors of a policy.

    Attributes:
        model: by transformers name; tied weights once or twice.
        learned: the exploration strategy's, by its names.
    """

    model: Mapping[str, Tensor]
    learned: Mapping[str, Tensor]


@torch.no_grad()
def export(source: ModelSource, tokenizer: Any, weights: Weights, folder: Path) -> None:
    """Writes config, generation config, tokenizer and weights: ``from_pretrained(folder)`` gives the policy.

    Learned exploration goes into a file beside them.

    Args:
        source: what the policy was loaded from; gives the architecture.
        tokenizer: written beside it.
        weights: of the policy.
        folder: made if it does not exist.

    Raises:
        SettingError: the weights do not fit the model.
    """
    model = AutoModelForCausalLM.from_pretrained(
        source.location,
        dtype=DTYPES[source.dtype],
        attn_implementation=IMPLEMENTATION,  # not one that the folder names: it could be code from the hub
        trust_remote_code=source.trust_remote_code,
    )
    parameters = dict(model.named_parameters())
    given = weights.model
    if not parameters.keys() <= given.keys() <= model.state_dict().keys():
        odd = sorted(parameters.keys() ^ given.keys())
        raise SettingError(
            f"the weights do not fit model.path={source.path} ({odd[0]} and {len(odd) - 1} others are in one alone); "
            "give the checkpoint of a run of this model."
        )
    for name, parameter in parameters.items():
        if parameter.shape != given[name].shape:
            raise SettingError(
                f"the weights do not fit model.path={source.path} ({name} is {list(given[name].shape)} and must be "
                f"{list(parameter.shape)}); give the checkpoint of a run of this model."
            )
        parameter.copy_(given[name])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_learned(weights.learned, folder)
    apply_umask(folder)


def checkpoint_weights(folder: Path, lora: LoraSettings | None = None) -> Weights:
    """Returns the policy's whole weights, adapters merged, from a checkpoint of one process or, sharded, of several.

    Args:
        folder: a complete checkpoint (`ngrpo.checkpoint.folders`).
        lora: of the run that wrote it.

    Raises:
        SettingError: its state is no state of a run, or would run code.
    """
    state = folder / STATE
    with tempfile.TemporaryDirectory() as scratch:
        if state.is_dir():
            whole = Path(scratch) / "whole.ckpt"
            dcp_to_torch_save(state, whole)
            state = whole
        try:
            tensors = dict(torch.load(state, map_location="cpu", weights_only=True)["state_dict"])
        except (pickle.UnpicklingError, RuntimeError, KeyError, TypeError, ValueError) as error:
            raise SettingError(f"{folder} holds no weights that can be read; give another checkpoint.") from error
    model = dict(merged(_below(_MODEL, tensors), lora, lambda tensor: tensor))
    return Weights(model, _below(_LEARNED, tensors))


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
