"""A causal language model that is in memory already, as the source of a policy."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel

from ngrpo.errors import SettingError
from ngrpo.modeling.attention import IMPLEMENTATION
from ngrpo.modeling.loading import DTYPES, ModelSource
from ngrpo.modeling.overflow import cast_weights
from ngrpo.modeling.supported_models import check_supported


@dataclass(frozen=True)
class ModelInMemory(ModelSource):
    """Gives copies of a model, which itself is never changed: attention, device and gradients are the copy's own.

    Attributes:
        lm: the model.
        given_tokenizer: a transformers tokenizer; None where nobody asks for one.
    """

    lm: PreTrainedModel = None
    given_tokenizer: Any = None

    @classmethod
    def of(cls, lm: PreTrainedModel, tokenizer: Any = None) -> "ModelInMemory":
        """Takes a model in the dtype that it has.

        Raises:
            SettingError: it is none that is supported.
        """
        dtype = str(lm.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise SettingError(f"the model's parameters are {dtype}; convert it to one of {', '.join(DTYPES)}.")
        return cls(path=str(lm.config._name_or_path or "in memory"), dtype=dtype, lm=lm, given_tokenizer=tokenizer)

    def load(self) -> PreTrainedModel:
        """Copies the model, in eval mode.

        Raises:
            RunError: an engine is to serve it in a dtype that cannot hold its weights.
        """
        self.config()
        lm = copy.deepcopy(self.lm)
        if lm.dtype != DTYPES[self.dtype]:  # an engine may serve another than the model's
            parameters = dict(lm.named_parameters())
            for name, cast in cast_weights(parameters.items(), DTYPES[self.dtype]):
                parameters[name].data = cast
        lm.set_attn_implementation(IMPLEMENTATION)
        copied: PreTrainedModel = lm.eval()
        return copied

    def config(self) -> PretrainedConfig:
        """Returns the model's."""
        check_supported(self.lm.config)
        return self.lm.config

    def check_files(self) -> None:
        """Finds nothing missing: there are no files."""
        self.config()

    def tokenizer(self) -> Any:
        """Returns the given one."""
        return self.given_tokenizer

    def file(self, name: str) -> Path | None:
        """Returns None: there are no files."""
        return None

    def _generation_config(self, config: PretrainedConfig) -> GenerationConfig:
        return self.lm.generation_config or GenerationConfig.from_model_config(config)
