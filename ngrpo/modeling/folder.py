"""The checks of a model's folder for damage, before and after its weights are read."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import PreTrainedModel
from transformers.utils import logging

from ngrpo.errors import SettingError

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_AGAIN = "copy the model again"
_SHOWN = 3
_OLD_BUFFERS = ("rotary_emb.inv_freq", "attn.bias", "attn.masked_bias")
"""Endings of names that old checkpoints hold and no model reads: tables that are made from the configuration."""


@contextmanager
def reading(path: str, what: str, remedy: str) -> Iterator[None]:
    """Turns whatever a library raises over a file's content into one sentence; lack of memory passes.

    Raises:
        SettingError: ``model.path=... has no usable {what} (reason); {remedy}.``
    """
    try:
        yield
    except (SettingError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise SettingError(f"model.path={path} has no usable {what} ({reason(error)}); {remedy}.") from error


@contextmanager
def only_errors() -> Iterator[None]:
    """Keeps transformers' table of what it did not find off the terminal; `check_loaded` says what matters."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def reason(error: BaseException) -> str:
    """Returns what an error says, on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".:")


def check_place(path: str, folder: Path) -> None:
    """Refuses a path that is there and no folder, and files in it that cannot be read as such.

    Raises:
        SettingError: see above; a path that is not there may be a hub name.
    """
    if folder.exists() and not folder.is_dir():
        raise SettingError(f"model.path={path} is no folder; give the folder that holds config.json.")
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if file.suffix in (".json", ".safetensors", ".bin") and not file.is_file():
            raise SettingError(f"model.path={path} holds {file.name}, which is no regular file; restore it.")


def check_weight_files(path: str, folder: Path) -> None:
    """Reads the tables of contents of a local folder's weights: all shards there, whole, with what the index says.

    Raises:
        SettingError: a file is missing or damaged.
    """
    if not folder.is_dir():
        return
    places = _places(path, folder)
    for shard in sorted(set(places.values())):
        # Opening checks that the file is as long as its header says.
        with reading(path, shard, _AGAIN), safe_open(folder / shard, framework="pt") as file:
            held = set(file.keys())
        missing = sorted(name for name, place in places.items() if place == shard and name and name not in held)
        if missing:
            raise SettingError(f"model.path={path} lacks {_some(missing)} in {shard}; copy the model again.")


def _places(path: str, folder: Path) -> dict[str, str]:
    """Returns the file of each tensor; one file without an index has no names."""
    if (folder / _WEIGHTS).exists():
        return {"": _WEIGHTS}
    if not (folder / _INDEX).exists():
        if any(folder.glob("pytorch_model*.bin")):
            return {}
        raise SettingError(f"model.path={path} holds no weights; copy {_WEIGHTS}, or its shards and {_INDEX}, into it.")
    with reading(path, _INDEX, "copy the model again"):
        places = {
            str(name): str(shard) for name, shard in json.loads((folder / _INDEX).read_bytes())["weight_map"].items()
        }
    for shard in places.values():
        if Path(shard).name != shard or not (folder / shard).is_file():
            raise SettingError(f"model.path={path} lacks {shard}, which its {_INDEX} names; copy the model again.")
    return places


def check_loaded(path: str, model: PreTrainedModel, found: dict[str, Any]) -> None:
    """Refuses a model of which a tensor is missing, left over or not finite.

    Args:
        path: for the messages.
        model: as loaded.
        found: transformers' report on it.

    Raises:
        SettingError: see above. transformers draws what is missing at random, another draw at each loading.
    """
    missing = sorted(found["missing_keys"])
    if missing:
        raise SettingError(f"model.path={path} lacks {_some(missing)}, of which its config.json speaks; copy it again.")
    left_over = sorted(name for name in found["unexpected_keys"] if not name.endswith(_OLD_BUFFERS))
    if left_over:
        raise SettingError(
            f"model.path={path} holds {_some(left_over)}, for which its config.json has no place; give the config.json "
            "that belongs to the weights."
        )
    broken = [name for name, tensor in model.named_parameters() if not _finite(tensor)]
    if broken:
        too_small = ", or set model.dtype=bfloat16 if they are beyond float16's range" * (model.dtype == torch.float16)
        raise SettingError(
            f"model.path={path} holds NaN or infinite numbers in {_some(broken)}; give weights of a healthy model"
            f"{too_small}."
        )


@torch.no_grad()
def _finite(tensor: torch.Tensor) -> bool:
    """In one reading and without a copy: the least and the largest number, which are NaN if any is."""
    return tensor.numel() == 0 or bool(torch.stack(tensor.aminmax()).isfinite().all())


def _some(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more tensors" if more > 0 else "")
