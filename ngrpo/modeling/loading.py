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
from transformers.utils import cached_file

from ngrpo.errors import SettingError
from ngrpo.modeling.attention import IMPLEMENTATION
from ngrpo.modeling.folder import check_loaded, check_place, check_weight_files, only_errors, reading, reason
from ngrpo.modeling.layers import CHECKPOINTING
from ngrpo.modeling.lora import LoraSettings
from ngrpo.modeling.supported_models import check_supported
from ngrpo.utils.hub_access import check_place_or_name, may_be_repository, offline_if_unreachable

MODEL_PATH = Path(__file__).parent / "demo"
"""The shipped demo model, an ordinary Hugging Face folder; `ngrpo.demo_model` is how it was made."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class ModelSource:
    """Where the policy comes from (``model`` in the configuration).

    Attributes:
        path: folder or hub name; "demo" is the embedded model.
        dtype: dtype of the parameters, float32 | bfloat16, or float16 where nothing is trained.
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
        if self.path == "demo":
            return str(MODEL_PATH)
        if not Path(self.path).exists() and may_be_repository(self.path):
            offline_if_unreachable()
        return self.path

    def load(self) -> PreTrainedModel:
        """Loads the model in eval mode (reinforcement learning uses no dropout).

        Raises:
            SettingError: the path holds no causal LM, one that is not supported, or one that is damaged.
        """
        self.config()
        check_weight_files(self.path, Path(self.location))
        with reading(self.path, "weights", "copy the model again"), only_errors():
            model, found = AutoModelForCausalLM.from_pretrained(
                self.location,
                dtype=DTYPES[self.dtype],
                attn_implementation=IMPLEMENTATION,
                trust_remote_code=self.trust_remote_code,
                output_loading_info=True,
            )
        check_loaded(self.path, model, found)
        loaded: PreTrainedModel = model.eval()
        return loaded

    def config(self) -> PretrainedConfig:
        """Reads the configuration only, so that a wrong path fails before anything expensive starts.

        Raises:
            SettingError: the path holds no causal LM, or one that is not supported.
        """
        folder = Path(self.location)
        if self.path != "demo":
            check_place_or_name(self.path, "model.path")
        check_place(self.path, folder)
        try:
            config = AutoConfig.from_pretrained(self.location, trust_remote_code=self.trust_remote_code)
        except Exception as error:
            if "trust_remote_code" in str(error):
                raise SettingError(
                    f"model.path={self.path} brings code of its own; if you trust it, set model.trust_remote_code=true."
                ) from error
            raise SettingError(
                f"model.path={self.path} holds no model that transformers can load ({reason(error)}); "
                "give a folder with config.json or a hub name."
            ) from error
        if (folder / "adapter_config.json").exists():
            raise SettingError(
                f"model.path={self.path} holds an adapter, without which the policy would not be the KL's reference; "
                "merge it into its base model first."
            )
        check_supported(config)
        return config

    def check_files(self) -> None:
        """Finds what is missing or cut off in a local folder without reading the weights.

        Raises:
            SettingError: a file is missing or damaged.
        """
        self.config()
        check_weight_files(self.path, Path(self.location))

    def file(self, name: str) -> Path | None:
        """Returns the path of a further file beside the weights; None without one."""
        path = cached_file(
            self.location,
            name,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
            _raise_exceptions_for_gated_repo=False,
        )
        return None if path is None else Path(path)

    def tokenizer(self) -> Any:
        """Loads the tokenizer.

        Raises:
            SettingError: there is none, or it is damaged.
        """
        try:
            tokenizer = AutoTokenizer.from_pretrained(self.location, trust_remote_code=self.trust_remote_code)
            # For some architectures transformers makes one up that has special tokens only.
            made_up = len(tokenizer) == len(tokenizer.get_added_vocab())
            tokenizer.decode(tokenizer.encode("a"))
            if not isinstance(tokenizer.chat_template, str | dict | None):
                raise ValueError("its chat_template is no text")  # noqa: TRY301
        except Exception as error:
            raise self._no_tokenizer(reason(error)) from error
        if made_up:
            raise self._no_tokenizer("there is no vocabulary")
        return tokenizer

    def _no_tokenizer(self, why: str) -> SettingError:
        return SettingError(f"model.path={self.path} holds no tokenizer ({why}); save one beside the model.")

    def stop_ids(self, tokenizer: Any) -> tuple[int, ...]:
        """Returns the ids that end a response: the tokenizer's EOS and those of the generation config.

        Where there is no generation config, transformers makes one from the model's.

        Raises:
            SettingError: there is none, or one that is no token.
        """
        config = self.config()
        listed = self._generation_config(config).eos_token_id
        found = [tokenizer.eos_token_id, *(listed if isinstance(listed, list) else [listed])]
        ids = [token for token in found if token is not None]
        if not ids:
            raise SettingError(
                f"model.path={self.path} names no end-of-sequence token; set eos_token in its tokenizer."
            )
        for token in ids:
            if type(token) is not int or not 0 <= token < config.vocab_size:
                raise SettingError(
                    f"model.path={self.path} names the end-of-sequence token {token!r}, which is none of its "
                    f"{config.vocab_size}; correct eos_token_id in its generation_config.json or config.json."
                )
        return tuple(sorted(set(ids)))

    def _generation_config(self, config: PretrainedConfig) -> GenerationConfig:
        name = "generation_config.json"
        with reading(self.path, name, "restore it or remove it"):
            try:
                return GenerationConfig.from_pretrained(self.location)
            except OSError as error:
                if "JSON" in str(error):
                    raise
                return GenerationConfig.from_model_config(config)
