r"""Names of what an answer gives a value to: ``x``, ``f(3)``, ``\angle ABC``, ``\frac{AB}{CD}``, ``(n, k)``."""

import re

from ngrpo.rewards.answers.leads import is_label
from ngrpo.rewards.answers.scan import enclosed, split

_GREEK = (
    r"\\(?:alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta|kappa|lambda|mu|nu|xi|pi|rho|sigma|tau|phi|varphi"
)
_GREEK += r"|chi|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Phi|Psi|Omega|ell)(?![A-Za-z])"
_INDEX = r" ?_ ?(?:\{(?:[^{}]|\{[^{}]*\})*\}|\w)"
_SYMBOL = rf"(?:\\text ?\{{[^{{}}]*\}}|{_GREEK}|[A-Za-z]+)(?:{_INDEX})?'*"
_VALUED = r"\\(?:lim|max|min|sup|inf|int|sum|prod|gcd|deg|det|dim)(?![A-Za-z]).*"  # may be equal to, not solved for
_NAME = re.compile(
    r"(?:\\text ?\{[^{}]*\} ?)?(?:m ?)?(?:\\(?:angle|triangle|overline|vec|hat) ?)?"
    rf"(?:{_SYMBOL}|\{{{_SYMBOL}\}}|\| ?{_SYMBOL} ?\|)"
    rf"(?: ?\([A-Za-z\d, ]*\))?|\( ?{_SYMBOL}(?: ?, ?{_SYMBOL})+ ?\)"
    rf"|[A-Za-z](?: ?(?:\+|\\cap|\\cup) ?[A-Za-z])+|\\frac\{{d[a-z]?\}}\{{d[a-z]\}}|{_VALUED}"
)
_POINTS = r"\|?(?:\\overline ?)?\{?(?:[A-Z]{2}|[A-Za-z](?:_ ?(?:\{[^{}]*\}|\w))?)\}?\|?"
_PART = rf"(?:{_POINTS}(?:\^\{{?2\}}?)?)"
_COMPOUND = re.compile(
    rf"\\frac\{{{_PART}\}}\{{{_PART}\}}|{_PART}(?: ?(?:[-+:/]|\\cdot) ?{_PART})+"
    rf"|[A-Z]{{2}}\^\{{?2\}}?|\[[A-Z]{{3,}}\]"
    rf"|\\(?:sin|cos|tan|cot|sec|csc) ?(?:\\angle ?)?(?:[A-Z]{{1,3}}|\\[a-z]+)"
)
_WORDS = re.compile(rf"{_INDEX}|\\text ?\{{(?P<marked>[^{{}}]*)\}}|(?<![\\A-Za-z])(?P<bare>[A-Za-z]{{3,}})|\\[A-Za-z]+")


def is_name(text: str) -> bool:
    r"""Whether a text only names something: ``x``, ``f(x)``, ``a_{10}``, ``\angle ABC``, ``(x, y)``, ``m + n``.

    Words in it must be ones that introduce an answer; ``\text{not}`` is no name.
    """
    spoken = (match["marked"] or match["bare"] for match in _WORDS.finditer(text))
    if not all(is_label(words) for words in spoken if words):
        return False
    return _NAME.fullmatch(text) is not None or _COMPOUND.fullmatch(text) is not None


def bare(name: str) -> str:
    """A name without spaces and braces, by which names are compared."""
    return re.sub(r"[{} ]", "", name)


def components(name: str | None) -> tuple[str, ...]:
    """The names in a tuple of names, ``("n", "k")`` for ``(n,k)``; empty for any other name."""
    inner = enclosed(name, "(", ")") if name else None
    parts = split(inner, re.compile(","))[0] if inner else []
    return tuple(parts) if len(parts) > 1 and len(set(parts)) == len(parts) else ()


def in_order(names: tuple[str, ...]) -> tuple[int, ...]:
    """The places of names in the order of a tuple of their values.

    Neighbors in the alphabet, such as x, y and z, or a letter with indices, stand in its order. Others, such as n
    and k, stand as they are written.
    """
    places = tuple(range(len(names)))
    by_name = tuple(sorted(places, key=lambda place: names[place]))
    letters = [names[place] for place in by_name]
    neighbors = all(len(letter) == 1 for letter in letters) and [ord(x) - ord(letters[0]) for x in letters] == [*places]
    return by_name if neighbors else places
