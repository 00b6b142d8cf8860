"""The model that a function is given: a name, a folder, or one in memory."""

from pathlib import Path
from typing import Any, TypeAlias

from omegaconf import DictConfig
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ngrpo.config.instantiate import build
from ngrpo.entrypoints.override_words import words_of
from ngrpo.errors import SettingError
from ngrpo.modeling.loading import ModelSource
from ngrpo.modeling.model_in_memory import ModelInMemory
from ngrpo.utils.given_values import shown

Model: TypeAlias = "str | Path | PreTrainedModel"
"""The embedded demo as ``"demo"``, another hub name, a folder, or a causal language model of transformers."""

_FORM = "a folder, a hub name, 'demo', or a causal language model of transformers"


def words_for(model: Model) -> list[str]:
    """Returns the settings that a model's name stands for.

    Raises:
        SettingError: it is neither a name nor a language model.
    """
    if not isinstance(model, str | Path | PreTrainedModel):
        raise SettingError(f"model={shown(model)} is no model; give {_FORM}.")
    if isinstance(model, PreTrainedModel) and not model.can_generate():
        raise SettingError(f"model= is a {type(model).__name__}, which predicts no tokens; give {_FORM}.")
    name = model if isinstance(model, str | Path) else str(model.config._name_or_path or "in memory")
    return words_of({"model": {"path": name}})


def source_of(model: Model, tokenizer: Any, config: DictConfig) -> ModelSource:
    """Returns where the weights come from.

    Args:
        model: as given.
        tokenizer: of a model in memory; None for others.
        config: checked settings, of which ``model`` counts for a model that is loaded.

    Raises:
        SettingError: a model in memory without its tokenizer, or a tokenizer of another.
    """
    if not isinstance(model, PreTrainedModel):
        if tokenizer is not None:
            raise SettingError(
                f"tokenizer= is for a model in memory, and {model} is loaded with its own; leave it out."
            )
        source: ModelSource = build(config.model)
        return source
    if tokenizer is None:
        raise SettingError("a model in memory needs its tokenizer; add tokenizer=.")
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        raise SettingError(
            f"tokenizer={shown(tokenizer)} is no tokenizer of transformers; give the model's, as "
            "AutoTokenizer.from_pretrained loads it."
        )
    return ModelInMemory.of(model, tokenizer)
