"""Words that are one token, for scripts that look at the embedding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ngrpo.errors import SettingError
from ngrpo.exploration.neighbor_table import excluded_rows
from ngrpo.exploration.vocabulary import Vocabulary
from ngrpo.modeling.loading import ModelSource


@dataclass(frozen=True)
class EmbeddedVocabulary:
    """An embedding table and the texts of its rows.

    Attributes:
        tokenizer: a transformers tokenizer.
        embedding: the input embedding; [V, d].
        size: ids that the tokenizer can produce; rows from here on are padding.
        excluded: rows that never become neighbours; bool [V].
    """

    tokenizer: Any
    embedding: Tensor
    size: int
    excluded: Tensor

    @classmethod
    def of(cls, source: ModelSource) -> "EmbeddedVocabulary":
        """Loads a model's.

        Raises:
            SettingError: there is no such model.
        """
        tokenizer = source.tokenizer()
        embedding = source.load().get_input_embeddings().weight.detach().float()
        vocabulary = Vocabulary.of(tokenizer)
        return cls(tokenizer, embedding, vocabulary.size, excluded_rows(embedding, vocabulary))

    def text(self, token: int) -> str:
        """Returns a token's text."""
        decoded: str = self.tokenizer.decode([token])
        return decoded

    def find(self, word: str) -> int | None:
        """Returns the token of a word as it stands inside a sentence, with the space before it, else without.

        None where it is no single token, or one that never becomes a neighbour.
        """
        for text in (" " + word, word):
            ids = self.tokenizer.encode(text, add_special_tokens=False)
            if len(ids) == 1 and not self.excluded[ids[0]]:
                return int(ids[0])
        return None

    def tokens(self, words: Sequence[str]) -> Tensor:
        """Returns the tokens of words; int64 [W].

        Raises:
            SettingError: a word is no single ordinary token.
        """
        for word in words:
            if not word or not word.isprintable():
                raise SettingError(f"{word!r} is no text; choose another word.")
        found = {word: self.find(word) for word in words}
        for word, token in found.items():
            if token is None:
                raise SettingError(f"{word!r} is no single ordinary token of this tokenizer; choose another word.")
        return torch.tensor(list(found.values()))

    def search(self, part: str) -> list[int]:
        """Returns the tokens whose text contains ``part``, upper and lower case alike, shortest first."""
        wanted = part.casefold()
        texts = {token: self.text(token) for token in range(min(self.size, len(self.embedding)))}
        found = [token for token, text in texts.items() if wanted in text.casefold()]
        return sorted(found, key=lambda token: (len(texts[token]), token))
