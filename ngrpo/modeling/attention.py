"""One attention function for all passes, registered with transformers as ``ngrpo``.

transformers hands each layer's rotated queries, keys and values to the function registered under the model's
attention implementation, together with the keyword arguments of the model's forward. Ours takes one, ``plan``: an
object that knows how this pass lays out its sequences. Packed training, packed prefill and batched decoding are
three plans. Masks and caches of transformers are not used.
"""

from itertools import accumulate
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PretrainedConfig

from ngrpo.errors import SettingError
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
        lengths: tokens of each sequence, in order; their sum is N.
        device: where the row is.
    """

    def __init__(self, lengths: list[int], device: torch.device) -> None:
        starts = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        self.starts = onto(starts, device)
        self.longest = max(lengths)

    def attend(self, module: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Attends; no token sees another sequence."""
        return packed_attention(query, key, value, self.starts, self.longest, scale)


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
    output = plan.attend(module, query, key, value, scaling)
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
