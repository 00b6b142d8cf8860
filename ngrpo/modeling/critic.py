"""The critic: the policy's architecture with a value in place of the vocabulary."""

from collections.abc import Mapping

from torch import Tensor, nn
from transformers import PreTrainedModel

from ngrpo.exploration.base import Exploration
from ngrpo.modeling.packing import PackedBatch
from ngrpo.modeling.policy import ScoringModel


class ValueModel(ScoringModel):
    """Wraps a transformers causal LM, whose head it drops, and predicts the return from the state before each token.

    It replays mixed positions with its own embedding table, as the policy does with its own. The head starts at zero:
    before the first step every value is 0, and the body starts to learn with the second.

    Args:
        lm: a causal LM loaded with the ``ngrpo`` attention implementation.
        learned: initial values of the exploration strategy's parameters, of which the critic learns its own.
    """

    def __init__(self, lm: PreTrainedModel, learned: Mapping[str, Tensor] | None = None) -> None:
        super().__init__(lm, learned)
        del lm.lm_head
        # Of the model's dtype, since FSDP shards it with the embedding and the norm.
        self.head = nn.Linear(lm.config.hidden_size, 1, dtype=lm.dtype)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(  # type: ignore[override]
        self, batch: PackedBatch, exploration: Exploration, last: bool = False
    ) -> Tensor:
        """Returns V of the state before each generated token; float32 [R].

        Args:
            batch: packed rollouts.
            exploration: the strategy of the rollouts; rebuilds their inputs.
            last: also return that of the state after the last token of each; [R + S], sequence by sequence.
        """
        rows = batch.state_rows if last else batch.scored_rows
        states = self.states(batch, exploration, rows).float()
        # A sum of products and not a matrix product, which autocast would do in bfloat16.
        return (states * self.head.weight[0].float()).sum(-1) + self.head.bias.float()
