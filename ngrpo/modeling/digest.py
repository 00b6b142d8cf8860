"""A digest of a model's weights, by which checkpoints, stored answers and comparisons know it."""

import hashlib
from pathlib import Path

from ngrpo.modeling.loading import ModelSource

_SHARE = 1 << 20
"""Bytes hashed at either end of a file of weights: every weight moves in training, and whole files take minutes."""


def weights_digest(source: ModelSource) -> str:
    """Returns a digest of a model folder's weights, or the hub's commit."""
    folder = Path(source.location)
    if not folder.is_dir():
        return str(getattr(source.config(), "_commit_hash", None) or source.location)
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")) + sorted(folder.glob("*.bin")):
        digest.update(f"{file.name}/{file.stat().st_size}/".encode())
        with file.open("rb") as content:
            digest.update(content.read(_SHARE))
            content.seek(max(0, file.stat().st_size - _SHARE))
            digest.update(content.read())
    return digest.hexdigest()[:16]
