"""The part of a tokenizer that a strategy may know."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizer's side of the embedding table.

    Attributes:
        size: number of ids the tokenizer can produce; rows from here on are padding.
        special_ids: special, reserved and other added tokens (chat markers, ``<think>``, ``<|reserved_0|>``).
        tokens: id of every added token by its text.
    """

    size: int
    special_ids: frozenset[int]
    tokens: dict[str, int]

    @classmethod
    def of(cls, tokenizer: Any) -> "Vocabulary":
        """Reads a transformers tokenizer."""
        added = {str(text): int(number) for text, number in tokenizer.get_added_vocab().items()}
        special = frozenset(added.values()) | frozenset(tokenizer.all_special_ids)
        return cls(size=len(tokenizer), special_ids=special, tokens=added)

    def end_ids(self, end_token: str | None) -> tuple[int, ...]:
        """Returns the ids that end the reasoning: none when the tokenizer has no such single token."""
        number = self.tokens.get(end_token) if end_token is not None else None
        return () if number is None else (number,)
