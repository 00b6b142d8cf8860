"""The policy as a Hugging Face folder."""

from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM

from ngrpo.modeling.loading import DTYPES, ModelSource


def export(source: ModelSource, tokenizer: Any, weights: dict[str, Any], folder: Path) -> None:
    """Writes config, generation config, tokenizer and weights, so that ``from_pretrained(folder)`` gives the policy.

    Args:
        source: what the policy was loaded from; gives the architecture.
        tokenizer: written beside it.
        weights: whole tensors by transformers name, tied weights once (`ngrpo.modeling.sharding.named_weights`).
        folder: made if it does not exist.

    Raises:
        ValueError: the weights do not fit the model.
    """
    model = AutoModelForCausalLM.from_pretrained(source.location, dtype=DTYPES[source.dtype])
    parameters = dict(model.named_parameters())
    if parameters.keys() != weights.keys():
        raise ValueError(f"weights do not fit {source.path}: {sorted(parameters.keys() ^ weights.keys())}")
    for name, parameter in parameters.items():
        parameter.data.copy_(weights[name])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
