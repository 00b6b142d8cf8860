"""The policy: a causal language model that scores recorded rollouts."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from ngrpo.exploration.base import Exploration
from ngrpo.exploration.support import masked_to
from ngrpo.modeling.attention import PackedAttention
from ngrpo.modeling.exact.model import exact_calls, is_exact
from ngrpo.modeling.fused_scores import entropy_from, fused_token_scores
from ngrpo.modeling.head import LogitMap, output_logits
from ngrpo.modeling.packing import PackedBatch
from ngrpo.modeling.replay import replay
from ngrpo.types.support import NO_ID
from ngrpo.utils.tempered import tempered

T = TypeVar("T")

HEAD_ROWS = 4096
"""Logits of so many tokens and a vocabulary of 152k are 1.2 GiB in bfloat16."""


class TokenScores(NamedTuple):
    """Scores of R generated tokens, in the order of the batch.

    Attributes:
        log_prob: the strategy's score of each token at the sampling temperature; float32 [R].
        entropy: of the softmax that each token was scored by, the full one or that of its support, in nats; float32
            [R].
    """

    log_prob: Tensor
    entropy: Tensor


class LearnedParameters(nn.Module):
    """What an exploration strategy learns; float32 whatever the model computes in.

    A module that returns its parameters, so that FSDP2 gathers them separately from the model's.
    """

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, value in values.items():
            self.register_parameter(name, nn.Parameter(value))

    def forward(self) -> dict[str, Tensor]:
        """Returns them by name."""
        return dict(self.named_parameters())


class ScoringModel(nn.Module):
    """Wraps a transformers causal LM: packed, replayed inputs in, token scores out.

    Replay, body and head all run inside this module's forward, so that FSDP2 with this module as its root gathers
    the embedding table and the head for them.

    The language model stays in eval mode whatever mode this module is put into: dropout, layer drop and router noise
    would give log-probs that are not the policy's, other ones at each pass.

    Attributes:
        head_rows: most response tokens whose logits are held at a time.

    Args:
        lm: a causal LM loaded with the ``ngrpo`` attention implementation.
        learned: initial values of the exploration strategy's parameters.
    """

    head_rows = HEAD_ROWS

    def __init__(self, lm: PreTrainedModel, learned: Mapping[str, Tensor] | None = None) -> None:
        super().__init__()
        self.lm = lm.eval()
        self.learned = LearnedParameters(learned or {})

    def train(self, mode: bool = True) -> Self:
        """Sets the mode of this module, as Lightning does when training starts; the language model keeps its own."""
        super().train(mode)
        self.lm.eval()
        return self

    def forward(
        self, batch: PackedBatch, temperature: float, exploration: Exploration, entropy_gradient: bool = False
    ) -> TokenScores:
        """Scores the generated tokens of a packed batch; logits exist for a chunk of the scored rows at a time.

        The entropy carries gradient only on request.
        """
        states = self.scored_states(batch, exploration)
        return self._score(states, batch, temperature, exploration, entropy_gradient)

    def run(self, function: Callable[["ScoringModel"], T]) -> T:
        """Calls a function with this model; like `forward`, within which FSDP2 gathers embedding and head."""
        return function(self)

    def scored_states(self, batch: PackedBatch, exploration: Exploration) -> Tensor:
        """Returns the last hidden state before each generated token; [R, d]."""
        return self.states(batch, exploration, batch.scored_rows)

    def states(self, batch: PackedBatch, exploration: Exploration, rows: Tensor) -> Tensor:
        """Returns the last hidden states at ``rows``, int64 [R], of the inputs that the rollout saw; [R, d]."""
        with exact_calls(self.lm):
            inputs = replay(self.lm.get_input_embeddings(), batch, exploration, self.learned())
        hidden = self.lm.base_model(
            inputs_embeds=torch.stack([inputs]),  # a view would be a case of its own to the compiler
            position_ids=batch.positions[None],
            use_cache=False,
            plan=PackedAttention(batch.lengths, batch.tokens.device, batch.shared),
        ).last_hidden_state[0]
        if batch.shared is None:
            return hidden[rows]
        # A prompt's last row scores a token of each response, whose gradients are added as they are in the layers.
        return hidden.to(torch.promote_types(hidden.dtype, torch.float32))[rows].to(hidden.dtype)

    def _score(
        self,
        hidden: Tensor,
        batch: PackedBatch,
        temperature: float,
        exploration: Exploration,
        entropy_gradient: bool,
    ) -> TokenScores:
        """Scores the response tokens from their hidden states [R, d]; tokens by the fused head, densities in chunks."""
        if exploration.scores_tokens:
            log_prob, entropy = self._token_scores(hidden, batch, temperature)
        else:
            log_prob, entropy = self._densities(hidden, batch, temperature, exploration)
        return TokenScores(log_prob, entropy if entropy_gradient else entropy.detach())

    def _token_scores(self, hidden: Tensor, batch: PackedBatch, temperature: float) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies of the tokens, each under the softmax of its support where it has one."""
        head, logit_map = self.lm.lm_head, LogitMap.of(self.lm.config)
        tokens, support = batch.tokens[batch.response_slots], batch.support

        def scores(rows: Tensor, tokens: Tensor, support: Tensor | None) -> tuple[Tensor, Tensor]:
            settings = (temperature, self.head_rows, logit_map, is_exact(head), support)
            return fused_token_scores(rows, head.weight, head.bias, tokens, *settings)

        if support is None or not batch.partly_whole:
            return scores(hidden, tokens, support)
        whole = (support[:, 0] == NO_ID).nonzero()[:, 0]
        cut = (support[:, 0] != NO_ID).nonzero()[:, 0]
        on_all, on_sets = scores(hidden[whole], tokens[whole], None), scores(hidden[cut], tokens[cut], support[cut])
        order = torch.cat((whole, cut)).argsort()
        log_prob, entropy = (torch.cat(both)[order] for both in zip(on_all, on_sets, strict=True))
        return log_prob, entropy

    def _densities(
        self, hidden: Tensor, batch: PackedBatch, temperature: float, exploration: Exploration
    ) -> tuple[Tensor, Tensor]:
        """A strategy's own scores, a chunk of rows at a time; the backward pass makes each chunk again."""
        steps, context = batch.steps(), batch.context(batch.response_slots, self.lm.get_input_embeddings().weight)

        def scores(rows: Tensor, at: slice) -> tuple[Tensor, Tensor]:
            logits, of = tempered(output_logits(self.lm, rows), temperature), steps.rows(at)
            return exploration.log_prob(logits, of, context.rows(at)), entropy_of(logits, of.support)

        chunks = [slice(start, start + self.head_rows) for start in range(0, len(hidden), self.head_rows)]
        made = [checkpoint(scores, hidden[at], at, use_reentrant=False) for at in chunks]
        log_probs, entropies = zip(*made, strict=True)
        return torch.cat(log_probs), torch.cat(entropies)


def entropy_of(logits: Tensor, support: Tensor | None = None) -> Tensor:
    """Returns the entropy in nats of softmax(logits), of each row's support where it has one; [R, V] -> [R]."""
    if support is not None:
        logits = masked_to(logits, support)
    return entropy_from(logits.log_softmax(-1))
