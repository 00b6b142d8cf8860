"""The policy's weights as whole tensors, for the rollout engine and for an exported model."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from ngrpo.modeling.lora import LoraSettings
from ngrpo.modeling.policy import ScoringModel
from ngrpo.modeling.sharding import full, named_learned, named_weights


@dataclass(frozen=True)
class WeightExport:
    """Takes whole tensors out of a policy that may be sharded (each method is a collective then).

    Attributes:
        policy: the model.
        lora: its adapter, which is merged; None without one.
    """

    policy: ScoringModel
    lora: LoraSettings | None

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yields all weights by transformers name; every rank walks it to the end."""
        return named_weights(self.policy, self.lora)

    def embedding(self) -> Tensor:
        """Returns the input embedding table, [V, d]."""
        return full(self.policy.lm.get_input_embeddings().weight.detach())

    def learned_exploration(self) -> dict[str, Tensor]:
        """Returns the exploration strategy's learned parameters by name."""
        return named_learned(self.policy)
