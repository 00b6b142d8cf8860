"""A reward model: a sequence classifier of transformers that scores a chat."""

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ngrpo.errors import SettingError, first_line
from ngrpo.types.problems import Message
from ngrpo.utils.hub_access import offline_if_unreachable

_UNIT = ("sigmoid", "softmax")


class RewardModel:
    """Rewards each completion with the output of a classifier for the chat of prompt and completion.

    The chat is written by the classifier's own chat template; where it has none, prompt and completion are a pair of
    texts. The model is loaded at the first call.

    Args:
        path: folder, or name on the hub, of a model with ``AutoModelForSequenceClassification`` and its tokenizer.
        label: which of its outputs is the reward; 0 for a model with one.
        scale: ``none`` takes the output itself, ``sigmoid`` its logistic function, ``softmax`` its share of all.
        max_tokens: the last ones of a longer chat are scored.
        batch_size: chats scored at a time.
        device: cpu, cuda, cuda:1, or auto for the first GPU there is.
        dtype: of the weights, or auto for that which they are stored in.

    Raises:
        SettingError: a number that cannot work, or a model without such an output.
    """

    def __init__(
        self,
        path: str,
        label: int = 0,
        scale: Literal["none", "sigmoid", "softmax"] = "none",
        max_tokens: int = 4096,
        batch_size: int = 8,
        device: str = "auto",
        dtype: str = "auto",
    ) -> None:
        for name, value in (("max_tokens", max_tokens), ("batch_size", batch_size)):
            if value < 1:
                raise SettingError(f"reward.{name}={value} scores nothing; set it to 1 or more.")
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
            ids = self._tokenizer(asked, completion)["input_ids"]
        return ids[-self.max_tokens :]

    @torch.inference_mode()
    def _scored(self, rows: Sequence[Sequence[int]]) -> Tensor:
        longest = max(map(len, rows))
        padding = self._model.config.pad_token_id
        ids = torch.tensor([[*row, *[padding] * (longest - len(row))] for row in rows], device=self._model.device)
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=self._model.device)
        outputs = self._model(input_ids=ids, attention_mask=mask).logits.float()
        if self.scale == "softmax":
            return outputs.softmax(-1)[:, self.label].cpu()
        chosen = outputs[:, self.label]
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
        if not 0 <= self.label < outputs:
            raise SettingError(
                f"reward.label={self.label} is none of the {outputs} outputs of reward.path={self.path}; lower it."
            )
        if model.config.pad_token_id is None:
            model.config.pad_token_id = next(
                (one for one in (self._tokenizer.pad_token_id, self._tokenizer.eos_token_id) if one is not None), 0
            )
        there = "cuda" if torch.cuda.is_available() else "cpu"
        return model.to(there if self.device == "auto" else self.device).eval()

    def _loaded(self, kind: Any, **options: Any) -> Any:
        if not Path(self.path).exists():
            offline_if_unreachable()
        try:
            return kind.from_pretrained(self.path, **options)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise SettingError(
                f"reward.path={self.path} cannot be loaded as a sequence classifier ({first_line(error)}); give the "
                "folder, or the name on the hub, of a reward model."
            ) from error
