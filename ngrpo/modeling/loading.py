"""Loading a policy and its tokenizer from a Hugging Face folder or hub name."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from ngrpo.demo import MODEL_PATH
from ngrpo.errors import SettingError
from ngrpo.modeling.attention import IMPLEMENTATION
from ngrpo.modeling.kinds import check_supported
from ngrpo.modeling.layers import CHECKPOINTING
from ngrpo.modeling.lora import LoraSettings

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class ModelSource:
    """Where the policy comes from (``model`` in the configuration).

    Attributes:
        path: folder or hub name; "demo" is the embedded model.
        dtype: dtype of the parameters, float32 | bfloat16.
        checkpointing: which activations of a layer are made again in the backward pass, off | selective | full; see
            `ngrpo.modeling.layers`.
        compile: run the decoder layers through torch.compile.
        lora: train low-rank adapters only; None trains everything.
        trust_remote_code: run the code that comes with the model, if its architecture is its own.
    """

    path: str = "demo"
    dtype: str = "float32"
    checkpointing: str = "off"
    compile: bool = False
    lora: LoraSettings | None = None

    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise SettingError(f"model.dtype={self.dtype} is not known; choose one of {', '.join(DTYPES)}.")
        if self.checkpointing not in CHECKPOINTING:
            raise SettingError(
                f"model.checkpointing={self.checkpointing} is not known; choose one of {', '.join(CHECKPOINTING)}."
            )

    @property
    def location(self) -> str:
        """The folder or hub name that transformers is given."""
        return str(MODEL_PATH) if self.path == "demo" else self.path

    def load(self) -> PreTrainedModel:
        """Loads the model in eval mode (reinforcement learning uses no dropout).

        Raises:
            SettingError: the path holds no causal LM, or one that is not supported.
        """
        self.config()
        return AutoModelForCausalLM.from_pretrained(
            self.location,
            dtype=DTYPES[self.dtype],
            attn_implementation=IMPLEMENTATION,
            trust_remote_code=self.trust_remote_code,
        ).eval()

    def config(self) -> PretrainedConfig:
        """Reads the configuration only, so that a wrong path fails before anything expensive starts.

        Raises:
            SettingError: the path holds no causal LM, or one that is not supported.
        """
        try:
            config = AutoConfig.from_pretrained(self.location, trust_remote_code=self.trust_remote_code)
        except (OSError, ValueError) as error:
            if "trust_remote_code" in str(error):
                raise SettingError(
                    f"model.path={self.path} brings code of its own; if you trust it, set model.trust_remote_code=true."
                ) from error
            raise SettingError(
                f"model.path={self.path} holds no model that transformers can load ({_first_line(error)}); "
                "give a folder with config.json or a hub name."
            ) from error
        if (Path(self.location) / "adapter_config.json").exists():
            raise SettingError(
                f"model.path={self.path} holds an adapter, without which the policy would not be the KL's reference; "
                "merge it into its base model first."
            )
        check_supported(config)
        return config

    def tokenizer(self) -> Any:
        """Loads the tokenizer.

        Raises:
            SettingError: there is none.
        """
        try:
            tokenizer = AutoTokenizer.from_pretrained(self.location, trust_remote_code=self.trust_remote_code)
        except (OSError, ValueError) as error:
            raise self._no_tokenizer(_first_line(error)) from error
        # For some architectures transformers makes one up that has special tokens only.
        if len(tokenizer) == len(tokenizer.get_added_vocab()):
            raise self._no_tokenizer("there is no vocabulary")
        return tokenizer

    def _no_tokenizer(self, reason: str) -> SettingError:
        return SettingError(f"model.path={self.path} holds no tokenizer ({reason}); save one beside the model.")

    def stop_ids(self, tokenizer: Any) -> tuple[int, ...]:
        """Returns the ids that end a response: those of the generation config and the tokenizer's EOS."""
        try:
            listed = GenerationConfig.from_pretrained(self.location).eos_token_id
        except OSError:
            listed = None
        ids = {tokenizer.eos_token_id, *(listed if isinstance(listed, list) else [listed])} - {None}
        if not ids:
            raise SettingError(
                f"model.path={self.path} names no end-of-sequence token; set eos_token in its tokenizer."
            )
        return tuple(sorted(ids))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
