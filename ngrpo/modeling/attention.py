"""One attention function for all passes, registered with transformers as ``ngrpo``.

transformers hands each layer's rotated queries, keys and values to the function registered under the model's
attention implementation, together with the keyword arguments of the model's forward. Ours takes one, ``plan``: an
object that knows how this pass lays out its sequences. Packed training, packed prefill and batched decoding are
three plans. Masks and caches of transformers are not used.
"""

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PretrainedConfig

from ngrpo.errors import SettingError

IMPLEMENTATION = "ngrpo"


class AttentionPlan(Protocol):
    """How one forward pass attends."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attends.

        Args:
            layer: index of the decoder layer.
            query: [B, H, T, D].
            key: [B, H_kv, T, D], H a multiple of H_kv.
            value: like ``key``.
            scale: factor on the scores.

        Returns:
            [B, H, T, D].
        """


class PackedAttention:
    """Causal attention inside each of the sequences packed into one row of N tokens.

    Args:
        lengths: tokens of each sequence, in order; their sum is N.
    """

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Runs one causal kernel a sequence; no token sees another sequence."""
        repeats = query.shape[1] // key.shape[1]
        segments = zip(*(torch.split(part, self.lengths, dim=2) for part in (query, key, value)), strict=True)
        outputs = [
            scaled_dot_product_attention(
                q, repeat_heads(k, repeats), repeat_heads(v, repeats), is_causal=True, scale=scale
            )
            for q, k, v in segments
        ]
        return torch.cat(outputs, dim=2)


def repeat_heads(tensor: Tensor, repeats: int) -> Tensor:
    """Repeats each key/value head for the query heads that share it; [B, H_kv, T, D] -> [B, H, T, D]."""
    return tensor if repeats == 1 else tensor.repeat_interleave(repeats, dim=1)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    plan: AttentionPlan,
    scaling: float,
    **_: Any,
) -> tuple[Tensor, None]:
    """The function that transformers calls; returns [B, T, H, D] and no weights."""
    output = plan.attend(module.layer_idx, query, key, value, scaling)  # type: ignore[arg-type]
    return output.transpose(1, 2), None


def check_attention(config: PretrainedConfig) -> None:
    """Refuses models whose layers do not all attend to the whole context.

    Raises:
        SettingError: the model has sliding-window or linear attention layers.
    """
    # Models whose layers are all alike (Mistral, Phi-3) list none.
    alike = "sliding_attention" if getattr(config, "sliding_window", None) else "full_attention"
    kinds = set(getattr(config, "layer_types", None) or [alike])
    if kinds != {"full_attention"}:
        raise SettingError(
            f"model.path={config._name_or_path} has layers of type {', '.join(sorted(kinds))}, and only full "
            "attention is supported; choose a model such as Qwen2, Qwen3 or Llama."
        )


AttentionInterface.register(IMPLEMENTATION, attention)
