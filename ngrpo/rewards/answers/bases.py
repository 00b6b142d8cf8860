r"""Numbers written in a base: ``101_2``, ``1A_{16}``, ``101_{\text{two}}``, ``101 base 2``."""

import re
from dataclasses import dataclass

_BASED = re.compile(
    r"(?:\\text\{|\()?(?P<sign>-?)(?P<digits>\d[\dA-F ,]*|[A-F][\dA-F]+)[)}]? ?"
    r"(?:_|\\text ?\{ ?\(?(?:in )?base |\(?(?:in )?base )(?P<base>[^+*/]+?)\)?",
    re.IGNORECASE,
)
_WORDS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NAMES = {word: number for number, word in enumerate(_WORDS, start=2)} | {"sixteen": 16}


@dataclass(frozen=True)
class Based:
    """Digits in a base. The written form is the answer, so it equals no other base and no plain number."""

    digits: str
    base: int

    def equals(self, other: "Based") -> bool:
        """The same digits in the same base."""
        return (self.digits, self.base) == (other.digits, other.base)


def read_based(text: str) -> Based | None:
    """Read a tidy text as a number in a base from 2 to 36."""
    match = _BASED.fullmatch(text)
    if match is None:
        return None
    base = re.sub(r"\\text|[{}() ]", "", match["base"]).lower()
    number = _NAMES.get(base) or (int(base) if re.fullmatch(r"\d{1,2}", base) else 0)
    digits = re.sub(r"[ ,]", "", match["digits"]).upper().lstrip("0") or "0"
    return Based(match["sign"] + digits, number) if 2 <= number <= 36 else None
