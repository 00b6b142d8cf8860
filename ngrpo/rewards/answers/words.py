r"""Answers in words, and the letters of multiple choice: ``\text{East}`` is ``east``, ``\text{(B)}`` is ``B``."""

import re
from dataclasses import dataclass

_TEXT = re.compile(r"\\text ?\{([^{}]*)\}")
_PHRASE = re.compile(r"[^\W\d_]+(?:[ '.,\-/&]+[^\W_]+)*[.!?]?")
_LETTER = re.compile(r"\(([A-Za-z])\)|([A-Za-z])[).:]|([A-Z])")
_IN_TEXT = re.compile(r"\\text ?\{ ?\(?([A-Za-z])[).:]? ?\}")
_CHOICE = re.compile(r"(?:\\text ?\{ ?\(?([A-J])[).:]? ?\} ?(?=\S)|\(([A-J])\) (?=\S)|([A-J])[).:] (?=\S))(.+)")
_LISTED = re.compile(r"(?:\\text ?\{ ?)?(?:and|or)\b")
_ANOTHER = re.compile(
    r"(?<![A-Za-z\d_^}'])(?:\((?:\\text ?\{ ?)?[A-J](?: ?\})?\)|[A-J][).:](?![\d.]))"
    r"|(?<![_^])\\text ?\{ ?\(?[A-J][).:]? ?\}|\b(?:or|nor|not)\b[^A-Za-z]*(?:\\text ?\{ ?)?\(?[A-J]\b(?!')"
)
_LETTERS = re.compile(r"^(?:[A-J](?:[ ,;/|]+|$)){2,}|^[A-J] (?:or|and) [A-J]$")
_OPTION = re.compile(r"^(\\text ?\{ ?)?(?:option|choice) ", re.IGNORECASE)
_SHORT = {"yes", "no", "odd", "all", "none", "dne", "one", "two", "six", "ten", "mon", "tue", "sat", "sun", "red"}
_SYMBOL = re.compile(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])")
_ROMAN = re.compile("[IVX]{2,}")
_NAME = re.compile("[A-Z][a-z]{2}")
_OPENING = re.compile(r"^(?:the|an?|there is|there are) (?=\w)")
_NONEXISTENT = ("d n e", "does not exist")


@dataclass(frozen=True)
class Words:
    """A word or phrase, without case and punctuation."""

    text: str

    def equals(self, other: "Words") -> bool:
        """The same words in the same order."""
        return self.text == other.text


@dataclass(frozen=True)
class Letter:
    """The letter of a choice; ``alone`` is False if what it stands for is written too."""

    letter: str
    alone: bool = True

    def equals(self, other: "Letter") -> bool:
        """The same letter; of two with their meanings it is these that count."""
        return self.letter == other.letter and (self.alone or other.alone)


def read_words(text: str) -> Words | None:
    r"""Read a tidy text as words.

    All of it in ``\text{}`` is words from two letters on; bare text, which could be a product of symbols, needs
    a word of four letters, a known short one or one such as "Bob".
    """
    if "\\text" in text and _SYMBOL.search(_TEXT.sub(" ", text)):
        return None
    inside = _TEXT.sub(r" \1 ", text)
    plain = " ".join(inside.replace("$", "").split())
    if _PHRASE.fullmatch(plain) is None:
        return None
    letters = re.findall(r"[^\W\d_]+", plain)
    spoken = any(len(word) >= 4 or word.lower() in _SHORT or _NAME.fullmatch(word) for word in letters) or is_roman(
        plain
    )
    marked = _TEXT.fullmatch(text) is not None and len(plain) > 1
    return Words(_normal(plain)) if spoken or marked else None


def is_roman(text: str) -> bool:
    """Whether a text is a Roman numeral, which is no product of symbols."""
    return _ROMAN.fullmatch(text.strip()) is not None


def read_letter(text: str) -> Letter | None:
    """Read a tidy text as the letter of a choice; a bare lower-case letter is a symbol."""
    text = _OPTION.sub(r"\1", text)
    match = _LETTER.fullmatch(text) or _IN_TEXT.fullmatch(text)
    return Letter(next(filter(None, match.groups())).upper()) if match else None


def split_choice(text: str) -> tuple[Letter, str] | None:
    r"""Split ``\text{(B) } 12`` into the letter and what it stands for."""
    match = _CHOICE.fullmatch(text)
    if match is None or _LISTED.match(match[4].strip()):
        return None
    return Letter(next(filter(None, match.groups()[:3])), alone=False), match[4].strip()


def holds_choice(meaning: str) -> bool:
    """Whether what stands behind the letter of a choice holds the letter of another one."""
    return any(pattern.search(meaning) for pattern in (_ANOTHER, _LETTERS)) or read_letter(meaning) is not None


def _normal(text: str) -> str:
    words = re.sub(r"[^\w\s]", " ", text.replace("'", "")).casefold().split()
    plain = _OPENING.sub("", " ".join(words))
    plain = re.sub(r"^(no (?:real )?solution)s$|(?<=\d)(?:st|nd|rd|th)\b", r"\1", plain)
    return "dne" if plain in _NONEXISTENT else plain
