"""The model loader through which vLLM loads the models of our engines: vLLM's own, and then `attach`.

vLLM takes loaders from outside under a name of their own (``register_model_loader``, ``load_format``). The other door,
own model classes in its ``ModelRegistry``, would need a class for each architecture that somebody brings, would hold
for every engine of the process, would lose what vLLM keys by the architecture's name, and would have each class
inspected in another process at the start. A loader sees the finished model, whatever made it.
"""

from typing import Any

from torch import nn
from vllm.config import replace
from vllm.config.load import LoadConfig
from vllm.model_executor.model_loader import BaseModelLoader, get_model_loader, register_model_loader

from ngrpo.rollout.vllm.attachment import attach
from ngrpo.rollout.vllm.private import weights_stay_loadable
from ngrpo.rollout.vllm.settings import LOAD_FORMAT, settings_of


@register_model_loader(LOAD_FORMAT)
class MixingLoader(BaseModelLoader):
    """Loads a model in the user's format and attaches what mixing needs."""

    def __init__(self, load_config: LoadConfig) -> None:
        super().__init__(load_config)
        extra = dict(load_config.model_loader_extra_config)
        theirs = replace(load_config, load_format=extra.pop("load_format"), model_loader_extra_config=extra)
        self._loader: Any = get_model_loader(theirs)

    def download_model(self, model_config: Any) -> None:
        """Does what the user's format does."""
        self._loader.download_model(model_config)

    def load_weights(self, model: nn.Module, model_config: Any) -> None:
        """Does what the user's format does."""
        self._loader.load_weights(model, model_config)

    def get_external_weight_memory(self, vllm_config: Any) -> int:
        """Returns what the user's format does, in a vLLM that asks."""
        held: int = self._loader.get_external_weight_memory(vllm_config)
        return held

    def load_model(self, vllm_config: Any, model_config: Any, prefix: str = "") -> nn.Module:
        """Loads the model.

        Raises:
            ValueError: the format was named without the settings of an engine of ours.
        """
        settings = settings_of(vllm_config)
        if settings is None:
            raise ValueError(f"load_format={LOAD_FORMAT} is for the engines of rollout=vllm")
        with weights_stay_loadable():
            model: nn.Module = self._loader.load_model(
                vllm_config=vllm_config, model_config=model_config, prefix=prefix
            )
            attach(model, vllm_config, settings)
        return model
