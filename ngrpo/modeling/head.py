"""The map from the product of a causal LM's head to its logits: a scale and, in some models, a soft cap.

    logits = c tanh(s z / c) with a soft cap c,   logits = s z without one,   z = hidden weight^T + bias.

transformers does this in each ``ForCausalLM.forward``, which neither the trainer nor the torch engine calls, since
they make logits of chosen rows only.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from ngrpo.errors import SettingError


@dataclass(frozen=True)
class LogitMap:
    """An elementwise, strictly increasing function of the head's product, in the dtype of the product.

    Attributes:
        scale: s > 0.
        cap: c > 0, or None.
    """

    scale: float = 1.0
    cap: float | None = None

    def __call__(self, product: Tensor) -> Tensor:
        """Returns the logits; any shape."""
        scaled = product if self.scale == 1.0 else product * self.scale
        return scaled if self.cap is None else torch.tanh(scaled / self.cap) * self.cap

    def slope(self, logits: Tensor) -> Tensor | float:
        """Returns d logits / d product from the logits: s (1 - (logits / c)^2), or s."""
        return self.scale if self.cap is None else self.scale * (1 - (logits / self.cap).square())

    @classmethod
    def of(cls, config: PretrainedConfig) -> "LogitMap":
        """Reads the model's own, by its type: types give the same name to a factor and to a divisor.

        Raises:
            SettingError: the configuration's factor is not a positive number.
        """
        return _BY_TYPE.get(config.model_type, _plain)(config)


def output_logits(lm: PreTrainedModel, hidden: Tensor) -> Tensor:
    """Returns the logits of last hidden states; [..., d] -> [..., V], in the dtype of the head's product."""
    return LogitMap.of(lm.config)(lm.lm_head(hidden))


def _plain(_: PretrainedConfig) -> LogitMap:
    return LogitMap()


def _factor(name: str) -> Callable[[PretrainedConfig], LogitMap]:
    return lambda config: LogitMap(scale=_positive(config, name))


def _divisor(name: str) -> Callable[[PretrainedConfig], LogitMap]:
    return lambda config: LogitMap(scale=1.0 / _positive(config, name))


def _capped(config: PretrainedConfig) -> LogitMap:
    name = "final_logit_softcapping"
    return LogitMap(cap=None if getattr(config, name) is None else _positive(config, name))


def _positive(config: PretrainedConfig, name: str) -> float:
    value = getattr(config, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise SettingError(
            f"model.path={config._name_or_path} has {name}={value} in its config.json, which is no factor on logits; "
            "give a positive number."
        )
    return float(value)


_BY_TYPE: dict[str, Callable[[PretrainedConfig], LogitMap]] = {
    "cohere": _factor("logit_scale"),
    "cohere2": _factor("logit_scale"),
    "cohere2_moe": _factor("logit_scale"),
    "gemma2": _capped,
    "gemma3_text": _capped,
    "granite": _divisor("logits_scaling"),
    "granitemoe": _divisor("logits_scaling"),
    "granitemoeshared": _divisor("logits_scaling"),
    "hyperclovax": _factor("logits_scaling"),
    "nanochat": _capped,
    "vaultgemma": _capped,
}
