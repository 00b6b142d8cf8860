"""The policy: a causal language model that scores recorded rollouts."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ngrpo.exploration.base import Exploration
from ngrpo.modeling.attention import PackedAttention
from ngrpo.modeling.packing import PackedBatch
from ngrpo.modeling.replay import replay


class TokenScores(NamedTuple):
    """Scores of R response tokens, in the order of the batch.

    Attributes:
        log_prob: the strategy's score of each token at the sampling temperature; float32 [R].
        entropy: of the full softmax that each token was scored by, in nats; float32 [R].
    """

    log_prob: Tensor
    entropy: Tensor


class ScoringModel(nn.Module):
    """Wraps a transformers causal LM: packed, replayed inputs in, token scores out.

    Replay, body and head all run inside this module's forward, so that FSDP2 with this module as its root gathers
    the embedding table and the head for them.

    Args:
        lm: a causal LM loaded with the ``ngrpo`` attention implementation.
        learned: initial values of the exploration strategy's parameters.
    """

    def __init__(self, lm: PreTrainedModel, learned: Mapping[str, Tensor] | None = None) -> None:
        super().__init__()
        self.lm = lm
        self.learned = nn.ParameterDict({name: nn.Parameter(value) for name, value in (learned or {}).items()})

    def forward(
        self, batch: PackedBatch, temperature: float, exploration: Exploration, entropy_gradient: bool = False
    ) -> TokenScores:
        """Scores the response tokens of a packed batch; logits exist for the scored rows only.

        The entropy carries gradient only on request, since that keeps another tensor of the logits' size.
        """
        logits = self.lm.lm_head(self.scored_states(batch, exploration)).float() / temperature
        entropy = entropy_of(logits if entropy_gradient else logits.detach())
        context = batch.context(batch.response_slots, self.lm.get_input_embeddings().weight)
        return TokenScores(exploration.log_prob(logits, batch.steps(), context), entropy)

    def scored_states(self, batch: PackedBatch, exploration: Exploration) -> Tensor:
        """Returns the last hidden state before each response token, of the inputs that the rollout saw; [R, d]."""
        inputs = replay(self.lm.get_input_embeddings(), batch, exploration, dict(self.learned.items()))
        hidden = self.lm.base_model(
            inputs_embeds=inputs[None],
            position_ids=batch.positions[None],
            use_cache=False,
            plan=PackedAttention(batch.lengths),
        ).last_hidden_state[0]
        return hidden[batch.scored_rows]


def entropy_of(logits: Tensor) -> Tensor:
    """Returns the entropy of softmax(logits) in nats; [R, V] -> [R]."""
    log_probs = logits.log_softmax(-1)
    return -(log_probs.exp() * log_probs.clamp_min(torch.finfo(log_probs.dtype).min)).sum(-1)
