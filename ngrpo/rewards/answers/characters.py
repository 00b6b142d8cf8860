"""Characters that people type instead of LaTeX, each with its LaTeX."""

import re
from unicodedata import normalize

_COMMANDS = {
    "×": r"\times",
    "⋅": r"\cdot",
    "·": r"\cdot",
    "∙": r"\cdot",
    "÷": r"\div",
    "±": r"\pm",
    "∓": r"\mp",
    "∞": r"\infty",
    "≤": r"\le",
    "≥": r"\ge",
    "⩽": r"\le",
    "⩾": r"\ge",
    "≠": r"\ne",
    "≈": r"\approx",
    "≅": r"\cong",
    "≊": r"\approx",
    "≋": r"\approx",
    "∶": ":",
    "≃": r"\approx",
    "≒": r"\approx",
    "≐": r"\approx",
    "∪": r"\cup",
    "∩": r"\cap",
    "∈": r"\in",
    "∖": r"\setminus",
    "∅": r"\emptyset",
    "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}",
    "√": r"\sqrt",
    "∛": r"\sqrt[3]",
    "∜": r"\sqrt[4]",
    "∠": r"\angle",
    "π": r"\pi",
    "α": r"\alpha",
    "β": r"\beta",
    "γ": r"\gamma",
    "δ": r"\delta",
    "θ": r"\theta",
    "λ": r"\lambda",
    "μ": r"\mu",
    "σ": r"\sigma",
    "φ": r"\phi",
    "ω": r"\omega",
    "⟨": r"\langle",
    "⟩": r"\rangle",
}
_FRACTIONS = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒"
_FULL_WIDTH = {chr(code + 0xFEE0): chr(code) for code in range(ord("!"), ord("~") + 1)}
_PLAIN = dict.fromkeys("‐‑‒–—−﹣", "-") | {"⁄": "/", "∕": "/", "°": r"^\circ", "％": r"\%", "…": "..."}
_PLAIN |= {"“": '"', "”": '"', "’": "'", "‘": "'", "′": "'", "\u00a0": " ", "\u2009": " ", "\u202f": " "}

_PLAIN |= dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad\ufe0e\ufe0f", "") | {
    "、": ",",
    "。": ".",
    "℃": r"^\circ C",
}
_PLAIN |= dict.fromkeys("\u2002\u2003\u2007\u2008\u200a\u3000", " ")
_SPOKEN = {
    "或者": "or",
    "或": "or",
    "以及": "and",
    "和": "and",
    "与": "and",
    "及": "and",
    "且": "and",
    "答案": "answer",
}
_CONJUNCTION = re.compile("|".join(_SPOKEN))

_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋ₙ]+")

_TO_LATEX = str.maketrans(
    _FULL_WIDTH
    | _PLAIN
    | {character: command + " " for character, command in _COMMANDS.items()}
    | {fraction: r"\frac{{{}}}{{{}}}".format(*normalize("NFKC", fraction).split("⁄")) for fraction in _FRACTIONS}
)


def to_latex(text: str) -> str:
    """Return the text with LaTeX for other characters; raised and lowered digits, ``10⁻³``, keep together."""
    text = _CONJUNCTION.sub(lambda word: f" {_SPOKEN[word[0]]} ", text)
    text = _RAISED.sub(lambda run: f"^{{{_plain(run[0])}}}", text)
    text = _LOWERED.sub(lambda run: f"_{{{_plain(run[0])}}}", text)
    return text.translate(_TO_LATEX)


def _plain(run: str) -> str:
    return normalize("NFKC", run).replace("−", "-")
