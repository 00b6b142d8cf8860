"""Sharded checkpoints without running what is in them.

PyTorch reads a sharded checkpoint's ``.metadata`` and its entries that are no tensors by unrestricted unpickling, which
runs whatever a file says. Here both are read first with nothing but the types that belong there.
"""

import io
import pickle
import re
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as types

_METADATA = ".metadata"
_NAMED = re.compile(r"GLOBAL ([\w.]+)")
_ALLOWED = {
    "torch.distributed.checkpoint.metadata": {name for name in vars(types) if not name.startswith("__")},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "pathlib": {"PosixPath", "PurePosixPath"},
    "collections": {"OrderedDict"},
}


class Unsafe(Exception):
    """A checkpoint names code; the message says which."""


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name) if self._known(module, name) else None
        if found is None:
            raise Unsafe(f"{module}.{name}")
        return found

    def _known(self, module: str, name: str) -> bool:
        if module == "torch":
            return name == "Size" or isinstance(getattr(torch, name, None), torch.dtype)
        # Classes of that module only, not what it imports.
        home = getattr(getattr(types, name, None), "__module__", None)
        return name in _ALLOWED.get(module, ()) and (module != types.__name__ or home == module)


def check_shards(folder: Path) -> None:
    """Reads what is no tensor of a sharded checkpoint.

    Raises:
        Unsafe: it names other code than belongs there.
    """
    path = folder / _METADATA
    if not path.exists():
        return
    with path.open("rb") as file:
        found = _Restricted(file).load()
    for index, place in found.storage_data.items():
        if (folder / place.relative_path).resolve().parent != folder.resolve():
            raise Unsafe(f"a file outside of it, {place.relative_path}")
        if isinstance(found.state_dict_metadata.get(index.fqn), types.BytesStorageMetadata):
            _check_entry(folder / place.relative_path, place.offset, place.length)


def _check_entry(path: Path, offset: int, length: int) -> None:
    with path.open("rb") as file:
        file.seek(offset)
        content = io.BytesIO(file.read(length))
    try:
        torch.load(content, weights_only=True)
    except pickle.UnpicklingError as error:
        named = _NAMED.search(str(error))
        raise Unsafe(named[1] if named else "an entry that is no plain value") from error
