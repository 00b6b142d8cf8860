"""The resolver ``${for_demo:${model.path},A,B}``: A for the demo model and those trained from it, B for others."""

import json
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

_SHIPPED = Path(__file__).parents[1] / "modeling" / "demo"
_SHAPE = (
    "model_type",
    "vocab_size",
    "max_position_embeddings",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
)


def register() -> None:
    """Makes the resolver known."""
    OmegaConf.register_new_resolver("for_demo", lambda path, yes, no: yes if is_demo(path) else no, replace=True)


def is_demo(path: Any) -> bool:
    """Says whether ``model.path`` is the demo model, or a folder with a model of its shape, such as an export of it.

    A folder that cannot be read is none; loading says what is wrong with it.
    """
    return path == "demo" or (isinstance(path, str) and _shape(Path(path)) == _shape(_SHIPPED))


def _shape(folder: Path) -> dict[str, Any] | None:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return {name: config.get(name) for name in _SHAPE} if isinstance(config, dict) else None
