"""One attention function for all passes, registered with transformers as ``ngrpo``.

transformers hands each layer's rotated queries, keys and values to the function registered under the model's
attention implementation, together with the keyword arguments of the model's forward. Ours takes one, ``plan``: an
object that knows how this pass lays out its sequences. Packed training, packed prefill and batched decoding are
three plans. Masks and caches of transformers are not used.
"""

import inspect
import math
from itertools import accumulate
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PretrainedConfig

from ngrpo.errors import SettingError
from ngrpo.modeling.cudnn_attention import attention_on
from ngrpo.modeling.exact.causal_attention import exact_packed_attention
from ngrpo.modeling.exact.model import is_exact
from ngrpo.modeling.shared_prompts import SharedPrompts
from ngrpo.modeling.transfer import onto
from ngrpo.modeling.varlen import packed_attention

IMPLEMENTATION = "ngrpo"


class AttentionPlan(Protocol):
    """How one forward pass attends."""

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attends.

        Args:
            module: the attention of a decoder layer; a plan that reads its number is compiled for each layer anew.
            query: [B, H, T, D].
            key: [B, H_kv, T, D], H a multiple of H_kv.
            value: like ``key``.
            scale: factor on the scores.

        Returns:
            [B, H, T, D].
        """


class PackedAttention:
    """Causal attention inside each of the sequences packed into one row of N tokens.

    Made once a pass: all layers use the same bounds.

    Args:
        lengths: tokens of each sequence, in order; their sum is N, or E where prompts are shared.
        device: where the row is.
        shared: the rows that sequences have in common; None without any.
    """

    def __init__(self, lengths: list[int], device: torch.device, shared: SharedPrompts | None = None) -> None:
        starts = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        self.starts = onto(starts, device)
        self.longest = max(lengths)
        self.kernel = attention_on(device)
        self.shared = shared

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attends; no token sees another sequence."""
        if self.shared is None:
            return self._attend(module, query, key, value, scale)
        keys, values = map(self.shared.keys_at_slots, (key, value))
        attended = self._attend(module, self.shared.queries_at_slots(query), keys, values, scale)
        return self.shared.at_rows(attended)

    def _attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        if is_exact(module):
            return exact_packed_attention(query, key, value, self.starts, self.longest, scale, packed_attention)
        return self.kernel(query, key, value, self.starts, self.longest, scale)


_CHANGES = ("softcap", "s_aux", "position_bias")
"""Keyword arguments by which a model asks for another attention."""


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    plan: AttentionPlan | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """The function that transformers calls; returns [B, T, H, D] and no weights.

    Raises:
        SettingError: the model's layers ask for more than causal softmax attention, or did not hand the plan on.
    """
    asked = [name for name in _CHANGES if options.get(name) is not None]
    if plan is None or asked:
        path = module.config._name_or_path  # type: ignore[union-attr]
        does = f"ask for {', '.join(asked)}" if asked else "take no arguments"
        raise SettingError(
            f"model.path={path} has attention layers that {does}, which is not supported; choose another model."
        )
    output = plan.attend(module, query, key, value, scaling)
    return output.transpose(1, 2), None


_SEES_LATER = {"is_causal": False, "use_bidirectional_attention": True}
"""Values in a configuration that make an encoder of a decoder; EmbeddingGemma is such a ``gemma3_text``."""


def check_attention(config: PretrainedConfig) -> None:
    """Refuses models whose layers do not all attend to the whole context before a token, and to nothing else.

    A window that is as long as the model's positions hides nothing.

    Raises:
        SettingError: the model attends to later tokens, has sliding-window or linear attention layers, or caps their
            scores.
    """
    for name, sees_later in _SEES_LATER.items():
        value = getattr(config, name, None)
        if value is not None and bool(value) == sees_later:
            raise SettingError(
                f"model.path={config._name_or_path} has {name}={value} in its config.json, with which tokens see those "
                "that follow them; give a causal language model."
            )
    window, kinds, full = getattr(config, "sliding_window", None), _kinds(config), {"full_attention"}
    if window and window >= getattr(config, "max_position_embeddings", math.inf):
        full.add("sliding_attention")
    if kinds - full:
        raise SettingError(
            f"model.path={config._name_or_path} has layers of type {', '.join(sorted(kinds))}, and only full "
            "attention is supported; choose a model such as Qwen2, Qwen3 or Llama."
        )
    cap = getattr(config, "attn_logit_softcapping", None)
    if cap is not None:
        raise SettingError(
            f"model.path={config._name_or_path} has attn_logit_softcapping={cap} in its config.json, and only plain "
            "softmax attention is supported; choose a model such as Qwen2, Qwen3 or Llama."
        )


def window_of(config: PretrainedConfig) -> int | None:
    """Returns how many tokens the layers of a supported model see, where some have a window."""
    window: int | None = getattr(config, "sliding_window", None)
    return window if "sliding_attention" in _kinds(config) else None


def _kinds(config: PretrainedConfig) -> set[str]:
    alike = "full_attention" if getattr(config, "sliding_window", None) is None else "sliding_attention"
    kinds = set(getattr(config, "layer_types", None) or [alike])
    return kinds if _reads_layer_types(config) else kinds | {alike}


def _reads_layer_types(config: PretrainedConfig) -> bool:
    """Whether a model's layers may differ; those of Mistral and Phi-3 all have the window, whatever is listed."""
    made_from = inspect.signature(type(config).__init__).parameters
    return hasattr(type(config), "layer_types") or "layer_types" in made_from


AttentionInterface.register(IMPLEMENTATION, attention)
