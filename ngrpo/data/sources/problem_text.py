"""The texts of problems: normalised for comparison, and checked to be encodable."""

import hashlib
import re
import unicodedata

from ngrpo.errors import SettingError

# Commands that set spaces and sizes, and the marks around mathematics.
_DRESSING = re.compile(r"\\(?:left|right|displaystyle|quad|qquad)(?![a-z])|\\[!,;: ()\[\]]|\$|~")
_FRACTION = re.compile(r"\\[dt]frac(?![a-z])")
_SPACE = re.compile(r"\s+")
# A space between two letters or digits tells "3 4" from "34"; any other is layout.
_LOOSE_SPACE = re.compile(r"(?<!\w) | (?!\w)")


def normalised(question: str) -> str:
    r"""Return the text by which problems are compared.

    Unicode forms, case, line breaks, spaces beside signs, dollar signs and LaTeX's spacing and sizing commands do not
    count (``\dfrac`` is ``\frac``), nor does the last full stop or question mark. Every letter, digit and operator
    does: ``3 4/5`` and ``34/5`` differ.
    """
    text = unicodedata.normalize("NFKC", question).casefold()
    text = _FRACTION.sub(r"\\frac", _DRESSING.sub(" ", text))
    return _LOOSE_SPACE.sub("", _SPACE.sub(" ", text)).strip().rstrip(".?")


def is_text(text: str) -> bool:
    """Whether a text can be encoded; half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_text(setting: str, text: str | None) -> None:
    """Refuses a setting that cannot be encoded.

    Raises:
        SettingError: it holds half of a surrogate pair.
    """
    if text is not None and not is_text(text):
        raise SettingError(f"{setting}={text!r} holds half of a surrogate pair, which is no character; take it out.")


def fingerprint(question: str) -> int:
    """Return 63 bits that are equal for questions of the same normalised text, and for others as good as never."""
    digest = hashlib.blake2b(normalised(question).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
