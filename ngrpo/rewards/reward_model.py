"""A reward model: a sequence classifier of transformers that scores a chat."""

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ngrpo.errors import SettingError, first_line
from ngrpo.types.problems import Message
from ngrpo.utils.hub_access import check_place_or_name, offline_if_unreachable
from ngrpo.utils.out_of_memory import out_of_memory

_UNIT = ("sigmoid", "softmax")


class RewardModel:
    """Rewards each completion with the output of a classifier for the chat of prompt and completion.

    The chat is written by the classifier's own chat template; where it has none, prompt and completion are a pair of
    texts. The model is loaded at the first call.

    Args:
        path: folder, or name on the hub, of a model with ``AutoModelForSequenceClassification`` and its tokenizer.
        label: which of its outputs is the reward; None for a model that has one.
        scale: ``none`` takes the output itself, ``sigmoid`` its logistic function, ``softmax`` its share of all.
        max_tokens: the last ones of a longer chat are scored; no more than the model has positions for.
        batch_size: chats scored at a time.
        device: cpu, cuda, cuda:1, or auto for the GPU of the process, if it has one.
        dtype: of the weights, or auto for that which they are stored in.

    Raises:
        SettingError: a number that cannot work, or a model without such an output.
    """

    def __init__(
        self,
        path: str,
        label: int | None = None,
        scale: Literal["none", "sigmoid", "softmax"] = "none",
        max_tokens: int = 4096,
        batch_size: int = 8,
        device: str = "auto",
        dtype: str = "auto",
    ) -> None:
        for name, value in (("max_tokens", max_tokens), ("batch_size", batch_size)):
            if value < 1:
                raise SettingError(f"reward.{name}={value} scores nothing; set it to 1 or more.")
        if dtype not in ("auto", "float32", "bfloat16", "float16"):
            raise SettingError(f"reward.dtype={dtype} is unknown; choose auto, float32, bfloat16 or float16.")
        if scale not in ("none", *_UNIT):
            raise SettingError(f"reward.scale={scale} is no scale; choose none, sigmoid or softmax.")
        self.path = path
        self.label = label
        self.scale = scale
        self.max_tokens = max_tokens
        self.batch_size = batch_size
        self.device = device
        self.dtype = dtype

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The smallest and the largest reward, where the scale gives them."""
        return (0.0, 1.0) if self.scale in _UNIT else None

    def __call__(self, completions: Sequence[str], prompts: Sequence[str | Sequence[Message]]) -> list[float]:
        """Returns a reward a completion, in batches of similar lengths."""
        inputs = [self._encoded(prompt, text) for prompt, text in zip(prompts, completions, strict=True)]
        by_length = sorted(range(len(inputs)), key=lambda index: len(inputs[index]))
        rewards = [math.nan] * len(inputs)
        for start in range(0, len(inputs), self.batch_size):
            places = by_length[start : start + self.batch_size]
            values = self._scored([inputs[place] for place in places]).tolist()
            for place, value in zip(places, values, strict=True):
                rewards[place] = value
        return rewards

    def close(self) -> None:
        """Frees the model; a later call loads it again."""
        self.__dict__.pop("_model", None)

    def _encoded(self, prompt: str | Sequence[Message], completion: str) -> list[int]:
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(one) for one in prompt]
        if self._tokenizer.chat_template:
            chat = [*messages, {"role": "assistant", "content": completion}]
            text = self._tokenizer.apply_chat_template(chat, tokenize=False)
            ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        else:
            asked = "\n".join(message["content"] for message in messages)
            # The pair begins with a token that encoders need: the tokenizer shortens it.
            return list(self._tokenizer(asked, completion, truncation=True, max_length=self._longest)["input_ids"])
        return ids[-self._longest :]

    @cached_property
    def _longest(self) -> int:
        positions = getattr(self._model.config, "max_position_embeddings", None) or self.max_tokens
        return min(self.max_tokens, positions, self._tokenizer.model_max_length)

    @torch.inference_mode()
    def _scored(self, rows: Sequence[Sequence[int]]) -> Tensor:
        longest = max(map(len, rows))
        # Decoders score the last token that is no padding: without such a token it is one that no row has.
        padding = self._padding
        if padding is None:
            present = {number for row in rows for number in row}
            padding = next(number for number in count() if number not in present)
            self._model.config.pad_token_id = padding
        ids = torch.tensor([[*row, *[padding] * (longest - len(row))] for row in rows], device=self._model.device)
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=self._model.device)
        outputs = self._model(input_ids=ids, attention_mask=mask).logits.float()
        if self.scale == "softmax":
            return outputs.softmax(-1)[:, self.label or 0].cpu()
        chosen = outputs[:, self.label or 0]
        return (chosen.sigmoid() if self.scale == "sigmoid" else chosen).cpu()

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return self._loaded(AutoTokenizer)

    @cached_property
    def _model(self) -> Any:
        from transformers import AutoModelForSequenceClassification

        model = self._loaded(AutoModelForSequenceClassification, dtype=self.dtype)
        outputs = model.config.num_labels
        if self.label is None and outputs > 1:
            names = ", ".join(f"{number} ({name})" for number, name in sorted(model.config.id2label.items()))
            raise SettingError(
                f"reward.path={self.path} has {outputs} outputs, and reward.label says of none that it is the reward; "
                f"choose one of {names}."
            )
        if not 0 <= (self.label or 0) < outputs:
            raise SettingError(
                f"reward.label={self.label} is none of the {outputs} outputs of reward.path={self.path}; lower it."
            )
        self._padding: int | None = model.config.pad_token_id
        there = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            return model.to(there if self.device == "auto" else self.device).eval()
        except (RuntimeError, AssertionError) as error:  # of a device that is not there, or of none
            if out_of_memory(error):
                raise
            raise SettingError(
                f"reward.device={self.device} cannot be used ({first_line(error)}); choose cpu, cuda or auto."
            ) from error

    def _loaded(self, kind: Any, **options: Any) -> Any:
        check_place_or_name(self.path, "reward.path")
        if not Path(self.path).exists():
            offline_if_unreachable()
        try:
            return kind.from_pretrained(self.path, **options)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise SettingError(
                f"reward.path={self.path} cannot be loaded as a sequence classifier ({first_line(error)}); give the "
                "folder, or the name on the hub, of a reward model."
            ) from error
