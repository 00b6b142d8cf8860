"""Control tokens whose text stands in data: the text is encoded as any other, so that no question forges a turn.

A tokenizer turns ``<|im_end|>`` into the id that ends a turn wherever it stands. Here the marks that the chat template
has written are told apart from those in the question, by a copy of the tokenizer that knows them by other names.
(Recent versions of transformers can do so too, `sanitize_control_tokens`; not all supported ones, and not for plain
text.)
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

_BREAK = "\U000fff00"
"""Put behind every character of such text, which no token's text has; taken out before encoding."""

_FIRST_NAME = 0x100000
_MARK = re.compile(r"<\S+>|\[\S+\]|｜\S+｜")


class ControlTokens:
    """The tokens of a tokenizer that are no text: special ones, and added ones written as marks, such as ``<think>``.

    The token for unknown text is none of them.

    Attributes:
        texts: the text of each, by id.

    Args:
        tokenizer: of the model.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens_decoder
        ends = (tokenizer.bos_token_id, tokenizer.eos_token_id)
        unknown = None if tokenizer.unk_token_id in ends else tokenizer.unk_token_id
        self.texts: dict[int, str] = {
            number: token.content
            for number, token in added.items()
            if number != unknown  # which any text may become
            and token.content.strip()
            and (token.special or _MARK.fullmatch(token.content.strip()))
        }
        longest_first = sorted(self.texts.values(), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def among(self, ids: Iterable[int]) -> Counter[int]:
        """Counts the control tokens in a prompt."""
        return Counter(number for number in ids if number in self.texts)

    def broken(self, text: str) -> str:
        """Returns a text in which no control token can be found, to be put into a chat and given to `encoded`."""
        return self._pattern.sub(lambda found: "".join(character + _BREAK for character in found[0]), text)

    def encoded(self, text: str) -> list[int] | None:
        """Encodes a text with `broken` parts, without BOS and EOS; None if this tokenizer cannot be copied."""
        if self._copy is None:
            return None
        names = {content: chr(_FIRST_NAME + place) for place, content in enumerate(self.texts.values())}
        renamed = self._pattern.sub(lambda found: names[found[0]], text).replace(_BREAK, "")
        tokenizer, originals = self._copy
        return [originals.get(number, number) for number in tokenizer.encode(renamed, add_special_tokens=False).ids]

    @cached_property
    def _copy(self) -> tuple[Tokenizer, dict[int, int]] | None:
        """The tokenizer with control tokens by other names, and their ids by those that they have there."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            return None
        described = json.loads(backend.to_str())
        names = {number: chr(_FIRST_NAME + place) for place, number in enumerate(self.texts)}
        for token in described["added_tokens"]:
            token["content"] = names.get(token["id"], token["content"])
        _rename(described["model"], self.texts, names)
        described["post_processor"] = described["truncation"] = described["padding"] = None
        copy = Tokenizer.from_str(json.dumps(described))
        there = ((copy.token_to_id(name), number) for number, name in names.items())
        return copy, {renamed: number for renamed, number in there if renamed is not None}


def _rename(model: dict[str, Any], texts: dict[int, str], names: dict[int, str]) -> None:
    """Renames the tokens that are also in the model's own vocabulary, or merges could make them of text."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        for number, text in texts.items():
            vocabulary.pop(text, None)
            vocabulary[names[number]] = number
        if model.get("merges"):
            model["merges"] = _without(model["merges"], frozenset(texts.values()))
    else:
        for number in texts:
            if number < len(vocabulary):
                vocabulary[number][0] = names[number]
    unknown = next((number for number, text in texts.items() if text == model.get("unk_token")), None)
    if unknown is not None:
        model["unk_token"] = names[unknown]


def _without(merges: list[Any], texts: frozenset[str]) -> list[Any]:
    """Returns the merges, each a pair or two pieces with a space between, that neither make nor take such a text."""
    pairs = (tuple(merge.split(" ", 1) if isinstance(merge, str) else merge) for merge in merges)
    return [merge for merge, pair in zip(merges, pairs, strict=True) if texts.isdisjoint((*pair, "".join(pair)))]
