r"""Text as formulas: their numbers and letters, and the operators between them, whatever notation they are written in.

Nothing is computed here. It is for telling whether two texts hold the same formula: ``\dbinom82`` and
``\left({8 \choose 2}\right)`` do. Brackets, spacing and multiplication signs say nothing then, and an operator may
stand before its operands or between them. Runs in the trainer's process: time and memory are linear in the text.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from ngrpo.rewards.answers.characters import to_latex

MULTIPLY = "*"

_DRAWING = re.compile(r"\[asy\].*?(?:\[/asy\]|\Z)", re.DOTALL)
_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,(?:\\! *)?|\\,)(?=\d{3}(?!\d))")
_SPACING = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|limits|operatorname|quad|qquad|hline)(?![A-Za-z])\.?"
    r"|\\[,;!: ]|~|\\(?:begin|end)\{[^{}]*\}|\\\\|&|\^\{?\\circ\}?|\\[%$]|%|°"
)
_DIGITS_AS_ARGUMENTS = re.compile(r"\\([dtc]?frac|[dt]?binom)\s*(\d)\s*(?=[\d{])")
_TOKEN = re.compile(
    r"""\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s*+\{(?P<text>[^{}]*+)\}(?:\s*+\^\s*+\{?-?\d\}?)?
      | (?P<number>\d++\.?\d*+|\.\d++)
      | \\(?P<command>[A-Za-z]++)
      | (?P<word>[A-Za-z]++)
      | (?P<operator>[-+*/^!_|,;:])
      | (?P<bracket>[(\[{)\]}])
      | (?P<space>\s++)
      | (?P<other>\\?.)""",
    re.VERBOSE | re.DOTALL,
)

_NAMES = (
    dict.fromkeys(("frac", "dfrac", "tfrac", "cfrac", "div"), "/")
    | dict.fromkeys(("binom", "dbinom", "tbinom", "choose"), "choose")
    | dict.fromkeys(("times", "cdot", "ast"), MULTIPLY)
    | dict.fromkeys(("lvert", "rvert", "vert", "abs"), "|")
)
_FUNCTIONS = frozenset(
    """choose sqrt log ln exp sin cos tan cot sec csc arcsin arccos arctan gcd lcm max min mod floor ceil
    abs""".split()  # noqa: SIM905
)
_ATOMS = frozenset(
    """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau phi varphi chi psi omega
    pi infty""".split()  # noqa: SIM905
)
_BREAKS = frozenset(
    """le leq ge geq lt gt ne neq approx equiv in to rightarrow Rightarrow implies iff sim cong mid cup cap
    boxed""".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Formula:
    """A run of mathematics without words or relations in it.

    Attributes:
        leaves: its K numbers and letters, in order.
        gaps: the operators before each leaf, and those behind the last; K + 1.
        text: as written.
    """

    leaves: tuple[str, ...]
    gaps: tuple[tuple[str, ...], ...]
    text: str


def count(gaps: Iterable[Iterable[str]]) -> Counter[str]:
    """Returns the operators in some gaps with their numbers."""
    return Counter(operator for gap in gaps for operator in gap)


@lru_cache(maxsize=4096)
def formulas(text: str) -> tuple[Formula, ...]:
    """Returns the formulas of a text, plain or LaTeX, in order; words and relations stand between them."""
    text = _plain(text)
    found: list[Formula] = []
    leaves: list[str] = []
    gaps: list[list[str]] = [[]]
    start = 0
    for token in _TOKEN.finditer(text):
        kind, name = _kind(token, after_leaf=bool(leaves) and not gaps[-1])
        if kind == "leaf":
            leaves.append(name)
            gaps.append([])
        elif kind == "operator":
            gaps[-1].append(name)
        elif kind == "break":
            found.append(_formula(leaves, gaps, text[start : token.start()]))
            leaves, gaps, start = [], [[]], token.end()
    found.append(_formula(leaves, gaps, text[start:]))
    return tuple(formula for formula in found if formula.leaves)


def _formula(leaves: list[str], gaps: list[list[str]], text: str) -> Formula:
    return Formula(tuple(leaves), tuple(map(tuple, gaps)), text.strip(" .\n"))


def _plain(text: str) -> str:
    text = _THOUSANDS.sub("", to_latex(_DRAWING.sub(" ", text)))
    return _DIGITS_AS_ARGUMENTS.sub(r"\\\1{\2}", _SPACING.sub(" ", text))


def _kind(token: re.Match[str], after_leaf: bool) -> tuple[str, str]:
    """Returns leaf, operator, break or nothing, and the one name of the notations of a thing."""
    match token.lastgroup:
        case "number":
            return "leaf", _number(token[0])
        case "word" | "text":
            word = token[token.lastgroup].strip()
            kind = "operator" if word in _FUNCTIONS else "leaf" if len(word) == 1 else "break"
            return kind, _NAMES.get(word, word)
        case "command" if token["command"] in _ATOMS:
            return "leaf", token["command"]
        case "command" if token["command"] in _BREAKS:
            return "break", token["command"]
        case "command" | "operator":
            name = token[token.lastgroup]
            return "operator", _NAMES.get(name, name)
        case "bracket":
            return ("operator", MULTIPLY) if after_leaf and token[0] in "(" else ("", "")
        case "space":
            return "", ""
    return "break", token[0]


def _number(digits: str) -> str:
    whole, point, rest = digits.partition(".")
    return (whole.lstrip("0") or "0") + (point + rest.rstrip("0")).rstrip(".")
