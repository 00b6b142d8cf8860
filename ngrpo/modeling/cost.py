"""The cost of a sequence in one forward pass."""

from dataclasses import dataclass

from transformers import PretrainedConfig


@dataclass(frozen=True)
class PassCost:
    """``linear n + quadratic n^2`` floating-point operations for n tokens; forward and backward take three times that.

    Attributes:
        linear: of the matrix products, two a weight and token.
        quadratic: of causal attention, half of the square.
    """

    linear: float
    quadratic: float

    def __call__(self, tokens: int) -> float:
        """Returns the operations for a sequence of so many tokens."""
        return self.linear * tokens + self.quadratic * tokens**2

    @classmethod
    def of(cls, config: PretrainedConfig) -> "PassCost":
        """Reads the widths of a decoder with gated feed-forward layers, head included."""
        width, layers = config.hidden_size, config.num_hidden_layers
        head_size = getattr(config, "head_dim", None) or width // config.num_attention_heads
        queries, keys = config.num_attention_heads * head_size, config.num_key_value_heads * head_size
        attention = 2 * width * (queries + keys)
        weights = layers * (attention + 3 * width * config.intermediate_size) + config.vocab_size * width
        return cls(2.0 * weights, 2.0 * layers * queries)
